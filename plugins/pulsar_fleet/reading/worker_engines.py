"""One set of engines per worker process; Spark forks its workers, and a client's threads do not survive a fork."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # planning does not need the pulsar client
    from pulsar_fleet.cluster.connection import ClusterConnection
    from pulsar_fleet.reading.engines import Engines

_engines: dict[tuple[int, ClusterConnection], Engines] = {}


def worker_engines(connection: ClusterConnection) -> Engines:
    """The engines of this process for a cluster; a second call gives the same."""
    from pulsar_fleet.reading.engines import Engines

    key = (os.getpid(), connection)
    if key not in _engines:
        _engines[key] = Engines(connection)
    return _engines[key]
