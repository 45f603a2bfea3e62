"""How subscriptions' cursors are transferred from blue to green."""
