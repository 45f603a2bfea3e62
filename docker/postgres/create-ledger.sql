-- A database of its own: Airflow and the ledger both keep their schema version in a table `alembic_version`.
CREATE DATABASE fleet;
