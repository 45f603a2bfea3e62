"""Move applications that their owners connect to green: watch who left and who arrived, then terminate topics."""
