"""How namespaces go back from green to blue."""
