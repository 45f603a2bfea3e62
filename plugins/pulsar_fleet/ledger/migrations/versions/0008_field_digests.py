"""A digest of all fields of a resource on a cluster, by which a page finds the namespaces that differ."""

from __future__ import annotations

import hashlib
import json

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_INDEX = "ix_{}_digest"
_TABLES = {"fleet_observations": ("fleet", "observed_at"), "fleet_resource_versions": ("topic", "at")}
_NAMESPACE = "namespace"


def upgrade() -> None:
    """Add the column, fill it for namespaces, and index it."""
    for table, (owner, at) in _TABLES.items():
        op.add_column(table, sa.Column("digest", sa.String(32)))
        _fill(table, owner)
        op.create_index(_INDEX.format(table), table, ["kind", "name", owner, "digest", at])


def downgrade() -> None:
    """Remove the column."""
    for table in _TABLES:
        op.drop_index(_INDEX.format(table), table)
        with op.batch_alter_table(table) as batch:
            batch.drop_column("digest")


def _fill(table: str, owner: str) -> None:
    """Cluster by cluster, so that the documents of all are never in memory."""
    columns: list[sa.ColumnClause[str]] = [sa.column(name) for name in (owner, "cluster", "kind", "name")]
    rows = sa.table(table, *columns, sa.column("document", sa.JSON), sa.column("digest", sa.String))
    connection, own = op.get_bind(), (rows.c.kind == _NAMESPACE)
    for group, cluster in connection.execute(sa.select(rows.c[owner], rows.c.cluster).where(own).distinct()).all():
        part = sa.and_(own, rows.c[owner] == group, rows.c.cluster == cluster)
        stored = connection.execute(sa.select(rows.c.name, rows.c.document).where(part)).all()
        query = rows.update().where(part, rows.c.name == sa.bindparam("n")).values(digest=sa.bindparam("d"))
        connection.execute(query, [{"n": name, "d": _digest(document)} for name, document in stored])


def _digest(document: dict[str, dict[str, list[str]]]) -> str | None:
    """As the ledger computes it, in this release."""
    if "fields" not in document:
        return None
    fields = sorted((name, entry[0]) for name, entry in document["fields"].items())
    return hashlib.sha256(json.dumps(fields).encode()).hexdigest()[:32]
