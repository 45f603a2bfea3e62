"""What must hold before anything changes."""
