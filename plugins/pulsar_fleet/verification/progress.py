"""How far a comparison has come (pure)."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Takes how much is done, and of how much."""
