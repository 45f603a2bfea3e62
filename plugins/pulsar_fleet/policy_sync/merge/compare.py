"""Hold the clusters of a fleet beside each other and what they agreed on last (pure)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.ledger.reconciliation_store import Agreement
from pulsar_fleet.planning.diff_entry import Resource, same
from pulsar_fleet.policy_sync.merge.fields import Values, is_cluster_list, localised
from pulsar_fleet.policy_sync.merge.merge_field import Held, Rule, is_only_behind
from pulsar_fleet.policy_sync.merge.merge_resource import How, Merged, Side, merge_resource
from pulsar_fleet.policy_sync.merge.view import Item, View, place

_CONFLICTS = (Rule.TIME, Rule.NAME, Rule.JOINED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What every cluster should hold, whatever it holds now; `source` names it in messages."""

    source: str
    items: Mapping[Item, Values]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One resource on all clusters.

    :param sides: the clusters that have it.
    :param missing: the clusters on which it has to be created.
    :param gone: the clusters that had it once; or all that have it, where the authority does not.
    :param elsewhere: topics only: the clusters without the topic, on which nothing can be set.
    """

    item: Item
    merged: Merged
    sides: tuple[Side, ...]
    missing: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    agreed: Agreement | None = None

    @property
    def has_drift(self) -> bool:
        """Whether the clusters do not hold the same."""
        return bool(self.missing or self.gone or self.drifting)

    @property
    def drifting(self) -> dict[str, tuple[str, ...]]:
        """Field → the clusters that hold another value than they should."""
        found = {
            name: tuple(one.cluster for one in self.sides if not _holds(one, name, decision.value))
            for name, decision in self.merged.decisions.items()
        }
        return {name: clusters for name, clusters in found.items() if clusters}

    @property
    def conflicts(self) -> tuple[str, ...]:
        """The fields in which clusters moved apart; one that still holds what was replaced elsewhere did not."""
        return tuple(
            name
            for name, one in self.merged.decisions.items()
            if one.rule in _CONFLICTS and not all(self._is_behind(name, loser, one.value) for loser in one.losers)
        )

    def _is_behind(self, name: str, loser: Held, value: Json) -> bool:
        holders = [side.held(name) for side in self.sides if same(side.values.get(name), value)]
        base = self.agreed.document.get(name) if self.agreed else None
        return is_only_behind(loser, holders, base)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Everything that was compared; `unread` is what was left out because a cluster could not tell."""

    compared: tuple[Compared, ...]
    unread: tuple[Item, ...] = ()

    def drift(self) -> tuple[Compared, ...]:
        """The resources that are not the same everywhere."""
        return tuple(one for one in self.compared if one.has_drift)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On what terms clusters are compared.

    :param choices: what the operator chose, by resource and field.
    :param meant: whether a resource takes part; what does not is left as it is.
    :param apart: the resources that are not the same on all clusters and in the truth, where that is known already.
    """

    how: How = field(default_factory=How)
    truth: Truth | None = None
    choices: Mapping[Item, Mapping[str, Json]] = field(default_factory=dict)
    meant: Callable[[Item], bool] = lambda _: True
    apart: Collection[Item] | None = None


def compare(views: Sequence[View], agreed: Mapping[Item, Agreement], terms: Terms) -> Comparison:
    """Merge every resource; the order of the clusters makes no difference."""
    given = sorted(views, key=lambda view: view.cluster)
    items: set[Item] = {(Resource(kind), name) for kind, name in agreed}
    items.update(item for view in given for item in view.items)
    items.update(terms.truth.items if terms.truth else ())
    compared: list[Compared] = []
    unread: list[Item] = []
    for item in sorted(filter(terms.meant, items)):
        if all(view.knows(item) for view in given):
            compared.append(_compare(item, given, agreed.get(item), terms))
        else:
            unread.append(item)
    return Comparison(compared=tuple(compared), unread=tuple(unread))


def unsure_topics(views: Sequence[View]) -> dict[str, frozenset[str]]:
    """Cluster → the namespaces whose topics it has to be asked for.

    A topic without policies looks like no topic: only a list tells whether it lost its policies or is gone.
    """
    found: dict[str, set[str]] = {}
    topics = {item for view in views for item in view.items if item[0] is Resource.TOPIC_POLICY}
    for item in topics:
        namespace = place(item)[1]
        for view in views:
            there = (Resource.NAMESPACE, namespace) in view.items
            if there and item not in view.items and view.knows(item):
                found.setdefault(view.cluster, set()).add(namespace)
    return {cluster: frozenset(names) for cluster, names in found.items()}


def _compare(item: Item, views: Sequence[View], agreed: Agreement | None, terms: Terms) -> Compared:
    members = agreed.clusters if agreed else ()
    sides = tuple(
        Side(cluster=view.cluster, values=values, seen=view.seen.get(item, {}), joined=view.cluster in members)
        for view in views
        if (values := view.values(item)) is not None
    )
    absent = [view.cluster for view in views if view.values(item) is None]
    base = agreed.document if agreed else {}
    if agreed and not absent and _at_rest(item, sides, base, terms):
        nothing = Merged(values=dict(base), decisions={})
        chosen = terms.choices.get(item)
        merged = merge_resource(base, sides, replace(terms.how, chosen=chosen)) if chosen else nothing
        return Compared(item=item, merged=merged, sides=sides, agreed=agreed)
    if not agreed:
        # Who has never agreed with anybody has not moved away from anything either.
        sides = tuple(replace(side, joined=True) for side in sides)
    how = replace(terms.how, chosen=terms.choices.get(item, {}))
    if terms.truth is not None:
        return _against_truth(item, sides, absent, agreed, replace(how, truth=terms.truth.items.get(item)))
    merged = merge_resource(base, sides, how)
    if item[0] is Resource.TOPIC_POLICY:
        return Compared(item=item, merged=merged, sides=sides, elsewhere=tuple(absent), agreed=agreed)
    gone = _gone(absent, agreed) if sides else ()
    missing = tuple(one for one in absent if one not in gone) if sides else ()
    return Compared(item=item, merged=merged, sides=sides, missing=missing, gone=gone, agreed=agreed)


def _at_rest(item: Item, sides: Sequence[Side], base: Values, terms: Terms) -> bool:
    """Whether all that hold a resource hold what they last agreed on, and nobody says anything else."""
    if not all(side.joined for side in sides):
        return False
    if terms.apart is None:
        return terms.truth is None and all(same(side.values, base) for side in sides)
    return item not in terms.apart and same(sides[0].values, base)


def _against_truth(
    item: Item, sides: tuple[Side, ...], absent: Sequence[str], agreed: Agreement | None, how: How
) -> Compared:
    if how.truth is None:
        # Nothing is said about its fields; that it is there at all is what differs.
        nothing = Merged(values={}, decisions={})
        gone = tuple(side.cluster for side in sides) if item[0] is not Resource.TOPIC_POLICY else ()
        return Compared(item=item, merged=nothing, sides=sides, gone=gone, agreed=agreed)
    merged = merge_resource(agreed.document if agreed else {}, sides, how)
    if item[0] is Resource.TOPIC_POLICY:
        return Compared(item=item, merged=merged, sides=sides, elsewhere=tuple(absent), agreed=agreed)
    return Compared(item=item, merged=merged, sides=sides, missing=tuple(absent), agreed=agreed)


def _gone(absent: Collection[str], agreed: Agreement | None) -> tuple[str, ...]:
    had = {*agreed.clusters, *agreed.gone} if agreed else set()
    return tuple(one for one in absent if one in had)


def _holds(side: Side, name: str, value: Json) -> bool:
    """Whether a cluster holds a value; a list of clusters can be written in two ways for the one that holds it."""
    held = side.values.get(name)
    if is_cluster_list(name):
        return same(localised(held, side.cluster), localised(value, side.cluster))
    return same(held, value)
