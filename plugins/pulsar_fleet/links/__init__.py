"""Geo-replication between clusters, for every procedure that needs it: cluster lists, start positions, lag."""
