"""How policies stay equal between clusters that share no metadata store."""
