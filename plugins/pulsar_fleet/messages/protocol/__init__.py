"""Pulsar's wire protocol, as far as the entry engine needs it."""
