"""Merge bases, observations and conflicts of reconciliation."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the three tables of reconciliation."""
    op.create_table(
        "fleet_agreements",
        sa.Column("fleet", sa.String(500), primary_key=True),
        sa.Column("kind", sa.String(50), primary_key=True),
        sa.Column("name", sa.String(1000), primary_key=True),
        sa.Column("document", sa.JSON, nullable=False),
        sa.Column("clusters", sa.JSON, nullable=False),
        sa.Column("gone", sa.JSON, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "fleet_observations",
        sa.Column("fleet", sa.String(500), primary_key=True),
        sa.Column("cluster", sa.String(250), primary_key=True),
        sa.Column("kind", sa.String(50), primary_key=True),
        sa.Column("name", sa.String(1000), primary_key=True),
        sa.Column("fields", sa.JSON, nullable=False),
        sa.Column("looked", sa.Float, nullable=False),
    )
    op.create_table(
        "fleet_conflicts",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("fleet", sa.String(500), nullable=False, index=True),
        sa.Column("run_id", sa.String(250), nullable=False),
        sa.Column("kind", sa.String(50), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("field", sa.Text, nullable=False),
        sa.Column("rule", sa.String(50), nullable=False),
        sa.Column("winner", sa.String(250), nullable=False),
        sa.Column("sides", sa.JSON, nullable=False),
        sa.Column("chosen", sa.String(250)),
        sa.Column("settled_at", sa.DateTime(timezone=True)),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    )


def downgrade() -> None:
    """Drop the three tables."""
    for name in ("fleet_conflicts", "fleet_observations", "fleet_agreements"):
        op.drop_table(name)
