-- A database of its own: the records outlive Airflow's, and are backed up and restored without them.
CREATE DATABASE fleet;
