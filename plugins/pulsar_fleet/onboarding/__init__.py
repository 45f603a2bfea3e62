"""Onboard a cluster: copy everything but messages from a source, and verify that the copy is equal."""
