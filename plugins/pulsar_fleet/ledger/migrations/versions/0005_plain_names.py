"""Tables, columns and stored ids with the names of the field; the rows of earlier releases stay."""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_TABLES = (("fleet_agreements", "fleet_merge_bases"), ("fleet_marks", "fleet_resource_versions"))
_COLUMNS = (
    ("fleet_observations", "fields", "document"),
    ("fleet_observations", "looked", "observed_at"),
    ("fleet_conflicts", "settled_at", "resolved_at"),
)
_PHASES = (("fleet_phases", "phase", "switched", "cut_over"), ("fleet_phases", "phase", "undone", "aborted"))
_PROCEDURES = (("fleet_runs", "procedure", "return_namespaces", "fail_back_namespaces"),)
_KINDS = (
    ("fleet_resource_versions", "kind", "look", "scan"),
    ("fleet_resource_versions", "kind", "silent since", "outage"),
)
_VALUES = (*_PHASES, *_PROCEDURES, *_KINDS)
_KEY = ("fleet", "cluster", "kind", "name")


def upgrade() -> None:
    """Rename the tables, then the columns, then the stored ids."""
    for old, new in _TABLES:
        op.rename_table(old, new)
    for table, old, new in _COLUMNS:
        op.alter_column(table, old, new_column_name=new)
    _replace(_VALUES)
    _rename_key("seen", "fields")


def downgrade() -> None:
    """Restore the old names."""
    _rename_key("fields", "seen")
    _replace((table, column, new, old) for table, column, old, new in _VALUES)
    for table, old, new in _COLUMNS:
        op.alter_column(table, new, new_column_name=old)
    for old, new in _TABLES:
        op.rename_table(new, old)


def _replace(values: Iterable[tuple[str, str, str, str]]) -> None:
    for table, column, old, new in values:
        rows = sa.table(table, sa.column(column))
        op.execute(rows.update().where(rows.c[column] == old).values({column: new}))


def _rename_key(old: str, new: str) -> None:
    """Rename a key in the document of each observation."""
    columns: list[sa.ColumnClause[str]] = [sa.column(name) for name in _KEY]
    observations = sa.table("fleet_observations", *columns, sa.column("document", sa.JSON))
    connection = op.get_bind()
    for *key, document in connection.execute(sa.select(*columns, observations.c.document)).all():
        renamed = {new if name == old else name: value for name, value in document.items()}
        row = sa.and_(*(column == value for column, value in zip(columns, key, strict=True)))
        connection.execute(observations.update().where(row).values(document=renamed))
