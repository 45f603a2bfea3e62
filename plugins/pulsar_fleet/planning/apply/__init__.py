"""How a plan is carried out: each call is journaled, read back and recorded."""
