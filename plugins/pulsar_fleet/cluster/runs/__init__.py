"""What runs leave on a cluster while they work: overrides with their original values, and leases of namespaces."""
