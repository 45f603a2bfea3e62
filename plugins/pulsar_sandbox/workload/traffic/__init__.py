"""Counted traffic: applications that publish and consume, their journals, and the tally of every message."""
