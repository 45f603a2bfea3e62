"""What prevents a target from becoming equal to a source: the checks that every procedure makes."""
