"""Whether the cursors of two clusters stand at the same messages."""
