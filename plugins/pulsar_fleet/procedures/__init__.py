"""A procedure as one value, which Airflow and the terminal run alike; see docs/new_procedure.md."""
