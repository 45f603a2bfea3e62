"""Pages in Airflow's own server, behind its login and permissions."""
