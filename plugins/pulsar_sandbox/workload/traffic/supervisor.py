"""The operator of the traffic: restarts an application that does not come back by itself, and says that it did.

pulsar-client up to 3.13 can dead-lock when a broker redirects it (1 of about 15 live migrations). Nothing but the end
of its process helps then: as long as that runs, its connection holds messages that no other consumer gets.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pulsar_sandbox.workload.traffic.application_process import (
    ApplicationProcess,
    ReadingProcess,
    Received,
    WritingProcess,
)
from pulsar_sandbox.workload.traffic.journal import now

log = logging.getLogger(__name__)

MOST_RESTARTS = 4
_OUTAGE_SECONDS = 3
_MICROSECONDS = 1_000_000


@dataclass(slots=True)
class Supervisor:
    """Restarts the stuck applications of a run.

    :param readers: (topic, subscription) → its received messages, and its consumers.
    :param restart_seconds: seconds without progress after which an application is restarted.
    """

    producers: Sequence[WritingProcess]
    readers: Mapping[tuple[str, str], tuple[Received, Sequence[ReadingProcess]]]
    restart_seconds: float
    _restarted: dict[str, list[int]] = field(default_factory=dict)
    _outage: int = 0

    def restart_stuck(self, *, writing: bool) -> None:
        """Restart the stuck applications; `writing` while producers should publish."""
        at = now()
        if writing and at - self._latest() > _OUTAGE_SECONDS * _MICROSECONDS:
            # No application makes progress, so the cluster has an outage.
            self._outage = at
        for application in (*(self.producers if writing else ()), *self._consumers()):
            if application.has_ended and self._may_restart(application):
                self._restart(application, "its process ended", at)
        for producer in self.producers if writing else ():
            if self._is_stuck(producer, producer.last_ack, at):
                self._restart(producer, f"no answer to a publish for {self.restart_seconds:g} s", at)
        for (topic, subscription), (received, consumers) in self.readers.items():
            acked = [producer.acked for producer in self.producers if producer.topic.name == topic]
            oldest = received.oldest_missing(acked)
            if oldest is None or at - oldest < self.restart_seconds * _MICROSECONDS:
                continue
            # A consumer that hangs on one partition still receives from others: it is restarted later.
            long = at - oldest > 2 * self.restart_seconds * _MICROSECONDS
            for consumer in consumers:
                if self._is_stuck(consumer, oldest if long else consumer.last_delivery, at):
                    self._restart(consumer, f"{subscription!r} lacks a message for {self.restart_seconds:g} s", at)

    def _latest(self) -> int:
        """The time of the last progress of any application."""
        delivered = [consumer.last_delivery for consumer in self._consumers()]
        return max([*delivered, *(producer.last_ack for producer in self.producers)])

    def _consumers(self) -> Iterator[ReadingProcess]:
        return (consumer for _, consumers in self.readers.values() for consumer in consumers)

    def _may_restart(self, application: ApplicationProcess) -> bool:
        return len(self._restarted.get(application.name, ())) < MOST_RESTARTS

    def _is_stuck(self, application: ApplicationProcess, last: int, at: int) -> bool:
        restarts = self._restarted.get(application.name, [])
        since = max([last, self._outage, *restarts])
        return at - since > self.restart_seconds * _MICROSECONDS and self._may_restart(application)

    def _restart(self, application: ApplicationProcess, reason: str, at: int) -> None:
        self._restarted.setdefault(application.name, []).append(at)
        log.warning("restarting application %s, as its operator would: %s", application.name, reason)
        application.restart(reason)
