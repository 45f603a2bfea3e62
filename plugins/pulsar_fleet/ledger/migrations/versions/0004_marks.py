"""The version of each field of a resource on each cluster of an event topic."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the table of versions."""
    op.create_table(
        "fleet_marks",
        sa.Column("topic", sa.String(500), primary_key=True),
        sa.Column("cluster", sa.String(250), primary_key=True),
        sa.Column("kind", sa.String(50), primary_key=True),
        sa.Column("name", sa.String(1000), primary_key=True),
        sa.Column("document", sa.JSON, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("fleet_marks")
