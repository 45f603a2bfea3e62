"""How the admin API of a cluster is called."""
