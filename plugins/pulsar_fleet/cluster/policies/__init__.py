"""Which policies a cluster has, how each is read and set, and which value is in effect."""
