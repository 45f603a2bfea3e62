"""Who asked for a run, facts of a run (approvals, digests of reports), and the identity of the ledger."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from pulsar_fleet.ledger.audit import identify

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the column and the table."""
    op.add_column("fleet_runs", sa.Column("requested_by", sa.String(250)))
    op.create_table(
        "fleet_facts",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("run_id", sa.String(250), nullable=False, index=True),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("content", sa.JSON, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    )
    identify(op.get_bind())


def downgrade() -> None:
    """Remove the table and the column."""
    op.drop_table("fleet_facts")
    op.drop_column("fleet_runs", "requested_by")
