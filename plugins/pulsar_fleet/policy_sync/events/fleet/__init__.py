"""What the followers of a fleet share: which clusters belong to it, which still join, and which do not answer."""
