"""The whole fleet as the ledger has it: one page and metrics; no cluster is read."""
