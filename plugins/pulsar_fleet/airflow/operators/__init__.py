"""The operators: approvals, Spark jobs, drift, equality of snapshots."""
