"""Airflow: connection type, hook, operators, sensors, triggers, parameters and tasks."""
