"""Send the calls of remedies that a person asked for: through the guards, rate limited, recorded (client)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.http import RateLimiter
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import Conflict, FleetError, PreconditionFailed
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.links.cluster_lists import require_list_as_read
from pulsar_fleet.planning.hazards import guard_call, risks_of_calls
from pulsar_fleet.replication.doctor.model import Examination, RemedyCall
from pulsar_fleet.replication.doctor.text import examination_text

log = logging.getLogger(__name__)

CALLS_PER_SECOND = 5.0
"""An unload makes every client of a topic connect again: not all at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentCall(Document):
    """A call of a remedy, and why it failed; empty if it did not."""

    call: RemedyCall
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyResult(Document):
    """What was sent, and the examinations before and after."""

    sent: tuple[SentCall, ...]
    before: Examination
    after: Examination

    @property
    def failed(self) -> tuple[SentCall, ...]:
        """The calls that failed."""
        return tuple(call for call in self.sent if call.error)

    def changed(self) -> str:
        """What was sent, in a sentence."""
        done = counted(len(self.sent) - len(self.failed), "call")
        return f"{done} sent before{f', {len(self.failed)} failed' if self.failed else ''}."

    def text(self) -> str:
        """Whether something is still wrong, and what was sent."""
        failures = [f"  ! {sent.call.text()}: {sent.error}" for sent in self.failed]
        return "\n".join([*failures, examination_text(self.after, self.changed())])


def chosen_calls(examination: Examination, ids: Collection[str]) -> tuple[RemedyCall, ...]:
    """The calls of the diagnoses with these ids that can harm nothing; each once, in their order."""
    rows = (row for row in examination.diagnoses if row.automatic and row.id in ids)
    return tuple({call.text(): call for row in rows for call in row.calls}.values())


async def send_remedies(admins: Mapping[str, AdminClient], calls: Collection[RemedyCall]) -> tuple[SentCall, ...]:
    """Send calls one after the other, at most five in a second; what exists already counts as done.

    A call that fails does not stop those that follow, except to the same path: a schema that comes after one which was
    refused is not registered. A second call sends them again: each of them states a value, or unloads a topic.

    :raises PreconditionFailed: a guard refuses a call, or it could lose something; nothing was sent.
    """
    for remedy in calls:
        guard_call(remedy.call, remedy.cluster)
        for risk in risks_of_calls([remedy.call], remedy.cluster):
            if risk.hazard.needs_permission:
                raise PreconditionFailed(f"{remedy.text()}: {risk.reason}. Nothing was sent.", cluster=remedy.cluster)
    limiter = RateLimiter(CALLS_PER_SECOND)
    sent = list[SentCall]()
    for remedy in calls:
        if before := next((row for row in sent if row.error and _follows(remedy, row.call)), None):
            sent.append(SentCall(call=remedy, error=f"Not sent, since it comes after {before.call.text()[:80]}…"))
            continue
        await limiter.acquire()
        log.info("%s", remedy.text())
        sent.append(await _send(admins, remedy))
    return tuple(sent)


def _follows(remedy: RemedyCall, earlier: RemedyCall) -> bool:
    one, other = remedy.call, earlier.call
    return (remedy.cluster, one.method, one.path) == (earlier.cluster, other.method, other.path)


async def _send(admins: Mapping[str, AdminClient], remedy: RemedyCall) -> SentCall:
    admin = admins.get(remedy.cluster)
    if admin is None:
        return SentCall(call=remedy, error=f"{remedy.cluster} does not answer.")
    try:
        await require_list_as_read(admin, remedy.call, remedy.replaces)
        await admin.send(remedy.call)
    except Conflict as error:
        # A cluster, a tenant or a topic that exists by now.
        return SentCall(call=remedy, error="" if remedy.call.method == "PUT" else str(error))
    except FleetError as error:
        return SentCall(call=remedy, error=str(error))
    return SentCall(call=remedy)
