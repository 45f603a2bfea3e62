"""Carry changes of metadata over an event topic, as PIP-136 proposes."""
