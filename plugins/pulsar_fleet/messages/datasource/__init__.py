"""Topics as Spark data frames: the data source `pulsar`."""
