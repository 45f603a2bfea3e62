"""The validated settings of the forwarding of acknowledgments (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName

POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Whose acknowledgments are carried to the owner.

    :param namespace: where the shadow topics are.
    :param topics: shadow topics of it, or their sources; empty: all.
    :param subscriptions: names; empty: all.
    :param accept_positions: subscriptions whose present position on the shadow topics counts as acknowledged.
    :param create_missing: create a subscription that the owner lacks.
    :param poll_seconds: pause between two passes.
    """

    namespace: NamespaceName
    topics: tuple[TopicName, ...] = ()
    subscriptions: tuple[str, ...] = ()
    accept_positions: tuple[str, ...] = ()
    create_missing: bool = False
    poll_seconds: float = POLL_SECONDS

    @classmethod
    def of(cls, conf: JsonObject) -> Self:
        """Read the settings of a form or a command.

        :raises InvalidRequest: a name that is not valid, a position that is accepted of a subscription that is not
            forwarded, or no time between two passes.
        """
        subscriptions = tuple(dict.fromkeys(conf.get("subscriptions") or ()))
        accepted = tuple(dict.fromkeys(conf.get("accept_positions") or ()))
        if subscriptions and (others := sorted(set(accepted) - set(subscriptions))):
            raise InvalidRequest(
                f"'accept_positions' names {others[0]!r}, which 'subscriptions' does not: add it there, or leave "
                "'subscriptions' empty for all."
            )
        poll = float(conf.get("poll_seconds") or POLL_SECONDS)
        if poll <= 0:
            raise InvalidRequest(f"'poll_seconds' is {poll:g}: write a time in seconds that is more than 0.")
        return cls(
            namespace=NamespaceName.parse(conf.get("namespace") or ""),
            topics=tuple(dict.fromkeys(TopicName.parse(text) for text in conf.get("topics") or ())),
            subscriptions=subscriptions,
            accept_positions=accepted,
            create_missing=bool(conf.get("create_missing")),
            poll_seconds=poll,
        )

    def covers(self, name: str) -> bool:
        """Whether a subscription is forwarded."""
        return not self.subscriptions or name in self.subscriptions
