"""What is made on green and frozen on blue before the cut-over."""
