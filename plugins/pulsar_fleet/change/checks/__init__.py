"""What could stand in the way of making a target equal to a source, one module per subject (pure)."""
