"""The scheme of Airflow's message queues."""
