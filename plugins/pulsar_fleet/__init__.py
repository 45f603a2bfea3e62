"""Runbooks for fleets of Apache Pulsar clusters: plan, gate, apply, watch, verify and keep the evidence."""
