"""More bookies asked for than the target has, or others: ledgers cannot be created, topics cannot be read (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD
from pulsar_fleet.cluster.policies.setters import policy_calls
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD, Scope, topic_policy_calls
from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.preflight.bookies import affinity_groups
from pulsar_fleet.preflight.context import Pair, blocker, call_text, number, warning
from pulsar_fleet.preflight.findings import Finding

_ENSEMBLE, _WRITES = "bookkeeperEnsemble", "bookkeeperWriteQuorum"
_DEFAULT = "managedLedgerDefaultEnsembleSize"
_UNREADABLE = (
    "No ledger can be created there: the topics can be neither created nor read, and calls about them time out."
)


def bookies_suffice(pair: Pair) -> Iterator[Finding]:
    """Ensembles of namespaces and topics, and of the target's brokers, against its registered bookies.

    Observed on 4.2.4: the policy is accepted, the topic fails later. The list has bookies that are down too.
    """
    bookies, target = pair.probes.target.bookies, pair.target.cluster
    if bookies is None:
        return
    asked = [*_asked(pair)]
    default = number(pair.target, _DEFAULT)
    largest = max([default, *(int(policy[_ENSEMBLE]) for _, policy, _ in asked)])
    if bookies.count is None:
        if largest > 1:
            yield warning(
                "bookies-unknown",
                f"cluster {target}",
                f"{largest} bookies are asked for; how many {target} has is unknown: {bookies.unread}",
                "If it has fewer, no ledger can be created there, and the topics cannot be used.",
                f"count the bookies of {target}, or use a superuser's token.",
                values=(largest, None),
            )
        return
    for owner, policy, scope in asked:
        if int(policy[_ENSEMBLE]) > bookies.count:
            yield _too_few(pair, owner, policy, scope, bookies.count)
    if default > bookies.count:
        yield blocker(
            "bookies-missing",
            f"cluster {target}",
            f"{_DEFAULT} = {default}, and {counted(bookies.count, 'bookie')}",
            _UNREADABLE,
            f"add bookies to {target} until it has {default}.",
            values=(default, bookies.count),
        )


def bookie_groups_exist(pair: Pair) -> Iterator[Finding]:
    """The groups that the bookie affinity of namespaces names, against those of the target's bookies.

    Observed on 4.2.4: a ledger of such a namespace uses no bookie of another group. Without enough others the setter
    answers 204, and topics can be neither created nor loaded (500, "Not enough non-faulty bookies available").
    """
    bookies, target = pair.probes.target.bookies, pair.target.cluster
    if bookies is None or bookies.count is None:
        return
    for namespace in pair.translated.namespaces:
        groups = affinity_groups(namespace.policies.get("bookie_affinity"))
        if groups and bookies.groups is None:
            yield warning(
                "bookies-unknown",
                namespace.name,
                f"bookie affinity to {listed(groups)}; the groups of {target} are unknown: {bookies.unread}",
                "If it lacks them, its ledgers are placed otherwise, or cannot be created.",
                f"read the groups of {target} (pulsar-admin bookies racks-placement), or use a superuser's token.",
            )
        if missing := bookies.lacking(groups):
            asked = int((namespace.policies.get("persistence") or {}).get(_ENSEMBLE) or number(pair.target, _DEFAULT))
            usable = bookies.usable(groups)
            yield (blocker if usable < max(1, asked) else warning)(
                "bookie-group-missing",
                namespace.name,
                f"bookie affinity to {listed(groups)}; {target} has no bookie in {listed(missing)}, and "
                f"{counted(usable, 'bookie')} that {'is' if usable == 1 else 'are'} in a named group or in none",
                _UNREADABLE
                if usable < max(1, asked)
                else f"Nothing keeps its ledgers on {target} apart from those of other namespaces.",
                f"put bookies of {target} into {listed(missing)} (pulsar-admin bookies set-bookie-rack --group), only "
                "those that no namespace of another group needs: its ledgers use them no more.",
                values=(list(groups), sorted(bookies.groups or ())),
            )


def _asked(pair: Pair) -> Iterator[tuple[NamespaceName | TopicName, JsonObject, Scope]]:
    for namespace in pair.translated.namespaces:
        if (namespace.policies.get("persistence") or {}).get(_ENSEMBLE):
            yield NamespaceName.parse(namespace.name), namespace.policies["persistence"], Scope.LOCAL
    for topic in pair.translated.topic_policies:
        if (topic.policies.get("persistence") or {}).get(_ENSEMBLE):
            yield TopicName.parse(topic.topic), topic.policies["persistence"], Scope(topic.scope)


def _too_few(
    pair: Pair, owner: NamespaceName | TopicName, policy: Mapping[str, Json], scope: Scope, count: int
) -> Finding:
    """A smaller ensemble keeps the number of copies of a message while it is not below the write quorum."""
    source, target = pair.owner(str(owner)), pair.target.cluster
    copies = int(policy.get(_WRITES) or 0)
    remedy, call = f"add bookies to {target} until it has {policy[_ENSEMBLE]}", ""
    if 0 < copies <= count:
        smaller = {**policy, _ENSEMBLE: count}
        remedy += (
            f", or set {_ENSEMBLE} to {count} on {source} and plan again: each message keeps its {copies} "
            "copies, on fewer bookies"
        )
        call = "" if scope is Scope.GLOBAL else _setter(source, owner, smaller)
    else:
        remedy += f"; no policy with fewer bookies keeps the {copies} copies of each message"
    return blocker(
        "bookies-missing",
        str(owner),
        f"{_ENSEMBLE} = {policy[_ENSEMBLE]} and {_WRITES} = {copies} on {source}; {target} has "
        f"{counted(count, 'bookie')}",
        _UNREADABLE,
        f"{remedy}.",
        call=call,
        values=(policy[_ENSEMBLE], count),
    )


def _setter(source: str, owner: NamespaceName | TopicName, policy: JsonObject) -> str:
    if isinstance(owner, TopicName):
        calls = topic_policy_calls(TOPIC_BY_FIELD["persistence"], owner, Scope.LOCAL, None, policy)
    else:
        calls = policy_calls(BY_FIELD["persistence"], owner, None, policy)
    return call_text(source, *calls)
