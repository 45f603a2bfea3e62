"""Policies of namespaces and topics: how to read, compare and set them, and which value is in effect."""
