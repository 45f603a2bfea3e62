"""Alembic's entry point: run the migrations on the connection of the ledger."""

from __future__ import annotations

from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection, version_table="fleet_ledger_version")
with context.begin_transaction():
    context.run_migrations()
