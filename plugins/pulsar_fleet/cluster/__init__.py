"""One Pulsar cluster as we see it: names, errors, the admin client, what it held at a time."""
