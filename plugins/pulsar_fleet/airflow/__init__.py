"""Airflow wiring: connection type, hook, triggers and the tasks that the DAG files are made of."""
