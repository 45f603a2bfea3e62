"""Which of two edits is the later one: the reference clock, the updates that are accepted, and conflicts."""
