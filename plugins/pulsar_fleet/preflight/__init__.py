"""Whether a target can become equal to a source: the checks that every procedure runs."""
