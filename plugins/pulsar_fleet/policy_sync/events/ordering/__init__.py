"""Which of two edits is the later one: the reference clock, versions with their bounds, and conflicts."""
