"""What happened and what was seen: the ledger (SQL) and the artefacts (files)."""
