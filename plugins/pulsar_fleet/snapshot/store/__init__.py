"""How snapshots are stored as Parquet."""
