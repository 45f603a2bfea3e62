"""Known defects of Pulsar's brokers: which versions have them, how they show, and what is safe to do."""
