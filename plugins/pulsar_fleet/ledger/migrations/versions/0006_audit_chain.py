"""The audit chain, which begins with what is written from now on, and indexes for the newest records of namespaces."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from pulsar_fleet.ledger.audit import begin

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the table with its first entry, and the indexes."""
    op.create_table(
        "fleet_audit",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("run_id", sa.String(250), nullable=False, index=True),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("key", sa.String(500), nullable=False),
        sa.Column("content", sa.String(64), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
    )
    op.create_index("ix_fleet_phases_namespace", "fleet_phases", ["namespace", "id"])
    op.create_index("ix_fleet_verdicts_scope", "fleet_verdicts", ["scope", "at"])
    begin(op.get_bind())


def downgrade() -> None:
    """Remove the chain and the indexes."""
    op.drop_index("ix_fleet_verdicts_scope", "fleet_verdicts")
    op.drop_index("ix_fleet_phases_namespace", "fleet_phases")
    op.drop_table("fleet_audit")
