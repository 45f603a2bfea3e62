"""Versions of brokers, for comparing (pure)."""

from __future__ import annotations


def version_numbers(version: str) -> tuple[int, ...]:
    """`4.2.4-SNAPSHOT` → (4, 2, 4), for comparing."""
    numbers = (part for part in version.partition("-")[0].split("."))
    return tuple(int(part) for part in numbers if part.isdigit())
