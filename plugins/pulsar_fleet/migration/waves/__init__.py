"""Which namespaces move together, and when."""
