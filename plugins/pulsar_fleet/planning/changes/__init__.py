"""Which calls a difference needs, one module for each kind of resource."""
