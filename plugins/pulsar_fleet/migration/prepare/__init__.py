"""What a migration creates on green and overrides on blue before the cut-over."""
