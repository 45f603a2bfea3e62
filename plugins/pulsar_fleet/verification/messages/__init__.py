"""Whether the messages of two topics are equal, and why not."""
