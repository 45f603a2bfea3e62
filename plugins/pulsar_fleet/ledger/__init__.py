"""What a run did and saw: the ledger (SQL) and the artefacts (files)."""
