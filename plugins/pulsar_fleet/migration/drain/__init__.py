"""How the backlog of blue is watched until it is empty, and incidents are remedied."""
