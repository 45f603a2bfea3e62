"""What is redelivered, and what is lost, if applications move to another cluster: before the move, and after it."""
