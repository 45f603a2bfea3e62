"""One Pulsar cluster: names, errors, connection, clients and policies."""
