"""One run of a procedure: its id and its stores."""

from __future__ import annotations

import os
import pwd
import socket
import time
from dataclasses import dataclass
from typing import Self

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Run:
    """The id and the stores of a run; every step records its results there.

    :param id: unique over all procedures and stable over retries, such as `migrate_namespaces/manual__2026-11-21`.
    :param process: `host:pid` of the only process that executes the run; empty where any worker may.
    """

    id: str
    ledger: Ledger
    artefacts: Artefacts
    process: str = ""

    @classmethod
    def open(cls, run_id: str, process: str = "") -> Self:
        """The run in the default ledger and the default artefact store; a second call returns the same."""
        return cls(run_id, Ledger.open(), Artefacts.open(), process)

    @property
    def requester(self) -> str | None:
        """The user who asked for it; None where the ledger does not know, or has no such run."""
        recorded = self.ledger.run(self.id)
        return recorded.requested_by if recorded else None

    def stored(self, name: str) -> Json:
        """The JSON document that the run stored under a name; None if it stored none."""
        reference = self.artefacts.find(self.id, name)
        return self.artefacts.read_json(reference) if reference else None

    def waited_seconds(self, name: str) -> float:
        """For how long the run has waited, over all tries; the first call with a name begins to count.

        :param name: of the artefact with the begin.
        """
        began = self.stored(name)
        if began is None:
            began = time.time()
            self.artefacts.write_json(self.id, name, began)
        return float(time.time() - began)


def this_user() -> str:
    """The system's user who runs this process; not what its environment says, as `getpass.getuser` does."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        # A container's user may have no name.
        return f"uid {os.getuid()}"


def this_process() -> str:
    """`host:pid` of this process, for a run that one process executes."""
    return f"{socket.gethostname()}:{os.getpid()}"
