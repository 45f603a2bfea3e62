"""The scheduled reconciliation of policies."""
