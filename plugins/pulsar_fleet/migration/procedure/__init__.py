"""A migration or a failback in one run: the steps that depend on its settings, for the DAGs and for the terminal.

Steps that need no setting are called directly, with the `sides` of the procedure.
"""

from __future__ import annotations

from collections.abc import Mapping

from pulsar_fleet.migration.procedure.common import Procedure
from pulsar_fleet.migration.procedure.failback import Failback
from pulsar_fleet.migration.procedure.migration import Migration, following_wave

__all__ = ["PROCEDURES", "Failback", "Migration", "Procedure", "following_wave"]

PROCEDURES: Mapping[str, type[Migration] | type[Failback]] = {kind.NAME: kind for kind in (Migration, Failback)}
"""Name of a procedure in the ledger, which is the id of its DAG → its class."""
