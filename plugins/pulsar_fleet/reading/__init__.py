"""Messages in bulk: ranges, digests, engines and the Spark data source."""
