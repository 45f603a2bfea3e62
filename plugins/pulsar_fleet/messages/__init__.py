"""How messages are read in bulk: ranges, positions, digests."""
