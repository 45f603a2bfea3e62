"""Apply a plan: each call is recorded before it is sent, and read back."""
