"""Reports of the procedures about replication."""
