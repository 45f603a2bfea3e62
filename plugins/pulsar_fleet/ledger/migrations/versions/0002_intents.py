"""Intended writes, so that an interrupted run can be finished and undone."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the table of intents."""
    op.create_table(
        "fleet_intents",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("run_id", sa.String(250), nullable=False, index=True),
        sa.Column("change_id", sa.String(250), nullable=False),
        sa.Column("cluster", sa.String(250), nullable=False),
        sa.Column("kind", sa.String(50), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("field", sa.Text, nullable=False),
        sa.Column("before", sa.JSON),
        sa.Column("after", sa.JSON),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("fleet_intents")
