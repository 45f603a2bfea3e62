"""Which brokers serve a read-only namespace, what does that take from others, and where does each topic lie?"""
