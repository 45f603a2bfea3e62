"""The records of runs: the ledger (SQL) and the artefacts (files)."""
