"""The tasks of the DAG files, one module for each procedure; heavy imports stand inside the tasks."""
