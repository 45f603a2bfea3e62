"""The triggers of deferred tasks."""
