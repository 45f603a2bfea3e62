"""A cause that the doctor can name (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from pulsar_fleet.replication.doctor.model import Severity

UNEXPLAINED = "-unexplained"
"""Ends the id of a diagnosis that says that no cause was detected."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause; its texts are templates.

    :param automatic: the calls of its remedy can harm nothing.
    :param mutual: it is the same in both directions, and is named once.
    """

    id: str
    severity: Severity
    meaning: str
    consequence: str
    remedy: str
    automatic: bool = False
    mutual: bool = False
