"""Plan and apply what starts, changes and ends replication between clusters."""
