"""How messages are published and consumed through the client library, without a thread for each consumer."""
