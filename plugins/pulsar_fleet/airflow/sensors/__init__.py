"""The sensors."""
