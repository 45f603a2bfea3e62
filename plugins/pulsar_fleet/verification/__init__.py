"""Prove that two clusters hold the same messages."""
