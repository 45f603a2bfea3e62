"""The two engines that read messages: by the client and by stored entries."""
