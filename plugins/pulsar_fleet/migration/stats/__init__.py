"""What the statistics of topics say about partitions, clients and cursors."""
