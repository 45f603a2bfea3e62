"""Move applications that their owners connect to green: watch who left blue and who arrived, then close blue."""
