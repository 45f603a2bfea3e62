"""The statistics of topics: partitions, clients, backlog."""
