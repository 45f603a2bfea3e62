"""Bring a cluster into the fleet: everything that the source holds is copied and read back equal."""
