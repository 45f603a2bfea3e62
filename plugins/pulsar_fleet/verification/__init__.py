"""Whether two clusters hold the same messages, subscriptions and metadata."""
