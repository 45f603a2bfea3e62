"""Which planned calls can lose data, and the guards in front of them."""
