"""The compatibility checks, one module for each subject (pure)."""
