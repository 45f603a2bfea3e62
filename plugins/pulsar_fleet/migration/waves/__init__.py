"""Waves: which namespaces move together, and when."""
