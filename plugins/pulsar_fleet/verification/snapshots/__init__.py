"""Whether two stored snapshots are equal."""
