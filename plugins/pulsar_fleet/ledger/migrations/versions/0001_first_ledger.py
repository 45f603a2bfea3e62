"""Runs, changes, phases and verdicts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the first four tables."""
    op.create_table(
        "fleet_runs",
        sa.Column("run_id", sa.String(250), primary_key=True),
        sa.Column("procedure", sa.String(100), nullable=False),
        sa.Column("conf", sa.JSON, nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.Column("state", sa.String(20), nullable=False),
    )
    op.create_table(
        "fleet_changes",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("run_id", sa.String(250), nullable=False, index=True),
        sa.Column("change_id", sa.String(250), nullable=False),
        sa.Column("cluster", sa.String(250), nullable=False),
        sa.Column("resource", sa.String(500), nullable=False),
        sa.Column("action", sa.String(100), nullable=False),
        sa.Column("hazard", sa.String(20), nullable=False),
        sa.Column("before", sa.JSON),
        sa.Column("after", sa.JSON),
        sa.Column("outcome", sa.String(20), nullable=False),
        sa.Column("detail", sa.Text),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "fleet_phases",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("run_id", sa.String(250), nullable=False, index=True),
        sa.Column("namespace", sa.String(500), nullable=False),
        sa.Column("phase", sa.String(50), nullable=False),
        sa.Column("detail", sa.JSON),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "fleet_verdicts",
        sa.Column("run_id", sa.String(250), primary_key=True),
        sa.Column("scope", sa.String(500), primary_key=True),
        sa.Column("verdict", sa.String(20), nullable=False),
        sa.Column("messages", sa.BigInteger, nullable=False),
        sa.Column("summary", sa.Text, nullable=False),
        sa.Column("artefact", sa.JSON),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    )


def downgrade() -> None:
    """Drop the four tables."""
    for name in ("fleet_verdicts", "fleet_phases", "fleet_changes", "fleet_runs"):
        op.drop_table(name)
