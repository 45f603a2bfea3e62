"""How the backlog of blue is monitored until it is empty, and incidents are remediated."""
