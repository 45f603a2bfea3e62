"""The commands of `pulsar-fleet`, one module for each procedure."""
