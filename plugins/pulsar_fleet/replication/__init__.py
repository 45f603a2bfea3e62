"""Geo-replication: set it up, change it, take a cluster out, diagnose it, and fail applications over."""
