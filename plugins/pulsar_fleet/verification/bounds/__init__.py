"""Between which positions topics are compared."""
