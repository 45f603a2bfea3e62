"""Which causes can a fault of replication have, and what is the evidence of each? One module for each subject."""
