"""What several clusters should hold: identical fields, provenance, who wins."""
