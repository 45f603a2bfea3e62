"""The values that several clusters should hold: shared fields, provenance, three-way merge."""
