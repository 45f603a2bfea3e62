"""What one Pulsar cluster is: names, errors, how to reach it."""
