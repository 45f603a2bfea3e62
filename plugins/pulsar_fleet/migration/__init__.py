"""How namespaces move from blue to green while their clients keep running (PIP-188, made safe)."""
