"""Serve topics read-only by shadow topics: many readers beside the owner, from the same stored data."""
