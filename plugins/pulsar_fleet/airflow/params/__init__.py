"""The forms: the parameters of each DAG."""
