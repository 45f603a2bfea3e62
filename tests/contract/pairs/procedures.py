"""The procedures, each as one command on one namespace: what it is for, and what it may change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.contract.pairs.states import BOTH, links
from tests.contract.pairs.world import Link, World

from pulsar_fleet.cluster.names import TopicName

Words = Callable[[World], tuple[object, ...]]
Links = Callable[[World], set[Link]]


def no_links(_: World) -> set[Link]:
    return set()


@dataclass(frozen=True)
class Procedure:
    """One command.

    :param words: the command without `--yes` and `--dry-run`.
    :param changes: patterns of the facts that it may change.
    :param equals: it makes green's policies equal to blue's, and begins no replication.
    :param live: the application works while it runs.
    :param migrates: it redirects applications, or their owners repoint them.
    :param repoints: the cluster whose address the application has afterwards, if that is another.
    :param starts: the links that deliver afterwards.
    :param ends: those that it is meant to end.
    :param twice: how many messages may come twice, as it says itself.
    :param asks: whether it asks before it changes something.
    :param dry: whether it has a dry run.
    """

    words: Words
    changes: Sequence[str] = ()
    equals: bool = False
    live: bool = False
    migrates: bool = False
    repoints: str = ""
    starts: Links = no_links
    ends: Links = no_links
    twice: int = 0
    asks: bool = True
    dry: bool = True
    done: frozenset[int] = frozenset({0})


def migration(strategy: str, *, live: bool = False, repoints: str = "") -> Procedure:
    return Procedure(
        lambda world: ("migrate", *BOTH, "--namespaces", world.namespace, "--strategy", strategy),
        changes=(
            "green .*",
            "blue tenant",
            # What keeps blue's topics until their clients have been sent to green, and how to undo it.
            r"blue n: (migrated|replication_clusters|inactive_topic_policies|properties)",
            "blue n/.*: subscriptions",
        ),
        live=live,
        migrates=True,
        repoints=repoints,
        twice=20,
    )


def ends_green(world: World) -> set[Link]:
    return {link for link in world.links if "green" in (link.source, link.target)}


def readers(world: World) -> set[Link]:
    return {Link("blue", "blue", world.orders, TopicName(world.readers, world.orders.local))}


PROCEDURES: dict[str, Procedure] = {
    "onboard": Procedure(
        lambda world: ("onboard", *BOTH, "--select", world.namespace.tenant),
        changes=("green .*",),
        equals=True,
        # Changes that may delete something are left until their ids are allowed.
        done=frozenset({0, 5}),
    ),
    "reconcile": Procedure(
        lambda world: ("reconcile", *BOTH, "--select", world.namespace.tenant, "--mode", "repair"),
        changes=("green .*",),
        equals=True,
        dry=False,
        done=frozenset({0, 3}),
    ),
    "sync metadata": Procedure(
        lambda world: ("sync-metadata", *BOTH, "--select", world.namespace.tenant),
        changes=("green .*",),
        equals=True,
        dry=False,
        done=frozenset({0, 5}),
    ),
    "redirect": migration("redirect", live=True),
    "switch": migration("replicate_then_switch", live=True),
    "repoint": migration("replicate_then_repoint", repoints="green"),
    "fail back": Procedure(
        lambda world: ("fail-back", *BOTH, "--namespaces", world.namespace, "--allow-removal"),
        changes=(
            "blue .*",
            "green tenant",
            r"green n: (migrated|replication_clusters|inactive_topic_policies|properties)",
            "green n/.*: subscriptions",
        ),
        live=True,
        twice=20,
    ),
    "abort": Procedure(
        lambda world: ("abort", world.run or "cli/migrate-20260101T000000-0000"),
        changes=("green .*", "blue .*"),
    ),
    "replicate": Procedure(
        lambda world: ("replicate", *BOTH, "--namespaces", world.namespace),
        changes=("green .*", "blue tenant", "blue n: replication_clusters", "blue n/.*: replication"),
        starts=lambda world: links(world, BOTH, BOTH[::-1]),
    ),
    "replicate a topic": Procedure(
        lambda world: ("replicate", *BOTH, "--topics", world.orders),
        changes=("green .*", "blue tenant", "blue n/.*: replication"),
        starts=lambda world: links(world, BOTH, BOTH[::-1], topics=[world.orders]),
    ),
    "end replication": Procedure(
        lambda world: ("replicate", "blue", "--leaving", "green", "--namespaces", world.namespace),
        changes=(
            r"(blue|green) tenant",
            r"(blue|green) n: replication_clusters",
            r"(blue|green) n/.*: replication",
        ),
        ends=ends_green,
    ),
    "serve inside": Procedure(
        lambda world: ("serve-read-only", "blue", "--topics", world.orders, "--namespace", world.readers),
        changes=("blue readers.*", "blue n/orders: shadowTopics"),
        starts=readers,
    ),
    "serve elsewhere": Procedure(
        lambda world: ("serve-read-only", "blue", "--topics", world.orders, "--other-cluster", "c"),
        changes=("c .*", "blue tenant", "blue n/orders: replication"),
        starts=lambda world: links(world, ("blue", "c"), topics=[world.orders]),
    ),
    "verify": Procedure(
        lambda world: ("verify", *BOTH, "--namespace", world.namespace),
        dry=False,
        asks=False,
        done=frozenset({0, 3, 6}),
    ),
    "forecast": Procedure(
        lambda world: ("forecast-failover", *BOTH, "--select", world.namespace),
        dry=False,
        asks=False,
        done=frozenset({0, 3}),
    ),
    "prepare failover": Procedure(
        lambda world: ("prepare-failover", *BOTH, "--select", world.namespace),
        changes=("green n/.*: subscriptions", "blue n/.*: subscriptions"),
        done=frozenset({0, 3}),
    ),
    "forward acknowledgments": Procedure(
        lambda world: ("forward-acknowledgments", "blue", "--namespace", world.readers, "--once"), dry=False
    ),
}
