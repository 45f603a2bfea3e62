"""Snapshots: the metadata of a cluster at one time, read, stored and loaded."""
