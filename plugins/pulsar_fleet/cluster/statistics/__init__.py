"""What does a broker say of a topic? Its clients, its subscriptions, their cursors, and whose cursors these are."""
