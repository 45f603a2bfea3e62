"""What a cluster holds at one time."""
