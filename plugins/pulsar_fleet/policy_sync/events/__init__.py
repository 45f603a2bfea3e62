"""Metadata changes as events on a replicated topic (PIP-136)."""
