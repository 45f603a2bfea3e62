"""The tasks that the DAG files are made of, one module per procedure.

Whatever is heavy is imported inside the tasks: DAG files are parsed every few seconds.
"""
