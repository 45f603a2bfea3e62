"""Indexes for the pages of the fleet: the last scan of each cluster, and the resources of one name on all clusters."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"

_INDEXES = {
    "ix_fleet_observations_scan": ("fleet_observations", ["cluster", "observed_at"]),
    "ix_fleet_observations_name": ("fleet_observations", ["kind", "name", "cluster"]),
    "ix_fleet_resource_versions_kind": ("fleet_resource_versions", ["kind", "name", "cluster", "at"]),
}


def upgrade() -> None:
    """Create the indexes."""
    for name, (table, columns) in _INDEXES.items():
        op.create_index(name, table, columns)


def downgrade() -> None:
    """Remove the indexes."""
    for name, (table, _) in _INDEXES.items():
        op.drop_index(name, table)
