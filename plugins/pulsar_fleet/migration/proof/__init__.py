"""Proofs that green has what blue has: before the cut-over, right after it, and at the end."""
