"""How one state becomes another: difference, plan, undo."""
