"""The notifier."""
