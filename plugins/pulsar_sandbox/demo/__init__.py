"""The project's main job on real input: two clusters, live traffic, Airflow with its scheduler and UI, Spark."""
