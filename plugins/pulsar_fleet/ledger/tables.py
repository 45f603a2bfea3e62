"""The tables of the ledger after the newest migration."""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()

runs = sa.Table(
    "fleet_runs",
    metadata,
    sa.Column("run_id", sa.String(250), primary_key=True),
    sa.Column("procedure", sa.String(100), nullable=False),
    sa.Column("conf", sa.JSON, nullable=False),
    sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
    sa.Column("ended_at", sa.DateTime(timezone=True)),
    sa.Column("state", sa.String(20), nullable=False),
    sa.Column("requested_by", sa.String(250)),
)

facts = sa.Table(
    "fleet_facts",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("run_id", sa.String(250), nullable=False, index=True),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("content", sa.JSON, nullable=False),
    sa.Column("at", sa.DateTime(timezone=True), nullable=False),
)

changes = sa.Table(
    "fleet_changes",
    metadata,
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

intents = sa.Table(
    "fleet_intents",
    metadata,
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

phases = sa.Table(
    "fleet_phases",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("run_id", sa.String(250), nullable=False, index=True),
    sa.Column("namespace", sa.String(500), nullable=False),
    sa.Column("phase", sa.String(50), nullable=False),
    sa.Column("detail", sa.JSON),
    sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    sa.Index("ix_fleet_phases_namespace", "namespace", "id"),
)

verdicts = sa.Table(
    "fleet_verdicts",
    metadata,
    sa.Column("run_id", sa.String(250), primary_key=True),
    sa.Column("scope", sa.String(500), primary_key=True),
    sa.Column("verdict", sa.String(20), nullable=False),
    sa.Column("messages", sa.BigInteger, nullable=False),
    sa.Column("summary", sa.Text, nullable=False),
    sa.Column("artefact", sa.JSON),
    sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    sa.Index("ix_fleet_verdicts_scope", "scope", "at"),
)

audit = sa.Table(
    "fleet_audit",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("run_id", sa.String(250), nullable=False, index=True),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("key", sa.String(500), nullable=False),
    sa.Column("content", sa.String(64), nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
)

merge_bases = sa.Table(
    "fleet_merge_bases",
    metadata,
    sa.Column("fleet", sa.String(500), primary_key=True),
    sa.Column("kind", sa.String(50), primary_key=True),
    sa.Column("name", sa.String(1000), primary_key=True),
    sa.Column("document", sa.JSON, nullable=False),
    sa.Column("clusters", sa.JSON, nullable=False),
    sa.Column("gone", sa.JSON, nullable=False),
    sa.Column("at", sa.DateTime(timezone=True), nullable=False),
)

observations = sa.Table(
    "fleet_observations",
    metadata,
    sa.Column("fleet", sa.String(500), primary_key=True),
    sa.Column("cluster", sa.String(250), primary_key=True),
    sa.Column("kind", sa.String(50), primary_key=True),
    sa.Column("name", sa.String(1000), primary_key=True),
    sa.Column("document", sa.JSON, nullable=False),
    sa.Column("observed_at", sa.Float, nullable=False),
    sa.Column("digest", sa.String(32)),
    sa.Index("ix_fleet_observations_digest", "kind", "name", "fleet", "digest", "observed_at"),
    sa.Index("ix_fleet_observations_scan", "cluster", "observed_at"),
    sa.Index("ix_fleet_observations_name", "kind", "name", "cluster"),
)

conflicts = sa.Table(
    "fleet_conflicts",
    metadata,
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
    sa.Column("resolved_at", sa.DateTime(timezone=True)),
    sa.Column("at", sa.DateTime(timezone=True), nullable=False),
)

resource_versions = sa.Table(
    "fleet_resource_versions",
    metadata,
    sa.Column("topic", sa.String(500), primary_key=True),
    sa.Column("cluster", sa.String(250), primary_key=True),
    sa.Column("kind", sa.String(50), primary_key=True),
    sa.Column("name", sa.String(1000), primary_key=True),
    sa.Column("document", sa.JSON, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    sa.Column("digest", sa.String(32)),
    sa.Index("ix_fleet_resource_versions_digest", "kind", "name", "topic", "digest", "at"),
    sa.Index("ix_fleet_resource_versions_kind", "kind", "name", "cluster", "at"),
)
