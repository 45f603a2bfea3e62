"""From one state to another: difference, plan, hazards, apply."""
