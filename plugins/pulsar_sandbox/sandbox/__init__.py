"""Real Pulsar clusters on one machine, from Maven jars."""
