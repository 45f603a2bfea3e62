"""The two engines that read stored entries: as they are, and message by message."""
