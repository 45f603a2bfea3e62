"""Clients of the admin API of a cluster."""
