"""Why does a replicator not replicate, and what heals it?"""
