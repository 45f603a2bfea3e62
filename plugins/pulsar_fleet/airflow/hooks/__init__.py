"""The hook of a Pulsar connection."""
