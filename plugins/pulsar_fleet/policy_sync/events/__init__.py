"""Changes of metadata as events on a replicated topic (PIP-136)."""
