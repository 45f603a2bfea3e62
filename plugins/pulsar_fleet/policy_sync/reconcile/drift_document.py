"""What differs, as a document between the task that finds it and the task that repairs it (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.reconciliation_store import Agreement
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.merge.compare import Compared
from pulsar_fleet.policy_sync.merge.merge_field import Decision, Held, Rule
from pulsar_fleet.policy_sync.merge.merge_resource import Merged, Side
from pulsar_fleet.policy_sync.merge.provenance import Seen

SCHEMA_VERSION = 1


def drift_to_json(compared: Iterable[Compared]) -> JsonObject:
    """As a JSON object."""
    return {"schema_version": SCHEMA_VERSION, "compared": [_compared_to_json(one) for one in compared]}


def drift_from_json(found: JsonObject) -> tuple[Compared, ...]:
    """Read what `drift_to_json` wrote; another schema version is `InvalidRequest`."""
    if found.get("schema_version") != SCHEMA_VERSION:
        raise InvalidRequest(
            f"The drift has schema version {found.get('schema_version')!r}, this release reads {SCHEMA_VERSION}: "
            "look for it again."
        )
    return tuple(_compared_from_json(one) for one in found["compared"])


def _compared_to_json(one: Compared) -> JsonObject:
    agreed = one.agreed
    return {
        "item": [one.item[0].value, one.item[1]],
        "values": one.merged.values,
        "lost": one.merged.lost,
        "decisions": {name: _decision_to_json(decision) for name, decision in one.merged.decisions.items()},
        "sides": [
            [
                side.cluster,
                dict(side.values),
                {name: seen.to_json() for name, seen in side.seen.items()},
                side.joined,
            ]
            for side in one.sides
        ],
        "missing": list(one.missing),
        "gone": list(one.gone),
        "elsewhere": list(one.elsewhere),
        "agreed": [agreed.document, list(agreed.clusters), list(agreed.gone)] if agreed else None,
    }


def _compared_from_json(found: JsonObject) -> Compared:
    kind, name = found["item"]
    agreed = found["agreed"]
    return Compared(
        item=(Resource(kind), name),
        merged=Merged(
            values=found["values"],
            lost=found["lost"],
            decisions={field: _decision_from_json(one) for field, one in found["decisions"].items()},
        ),
        sides=tuple(
            Side(
                cluster=cluster,
                values=values,
                seen={field: Seen.from_json(one) for field, one in seen.items()},
                joined=joined,
            )
            for cluster, values, seen, joined in found["sides"]
        ),
        missing=tuple(found["missing"]),
        gone=tuple(found["gone"]),
        elsewhere=tuple(found["elsewhere"]),
        agreed=Agreement(document=agreed[0], clusters=tuple(agreed[1]), gone=tuple(agreed[2])) if agreed else None,
    )


def _decision_to_json(one: Decision) -> JsonObject:
    losers = [
        [each.cluster, each.value, each.not_before, each.not_after, each.joined, list(each.replaced)]
        for each in one.losers
    ]
    return {"value": one.value, "rule": one.rule.value, "winner": one.winner, "losers": losers}


def _decision_from_json(found: JsonObject) -> Decision:
    losers = tuple(
        Held(cluster=cluster, value=value, not_before=begin, not_after=end, joined=joined, replaced=tuple(replaced))
        for cluster, value, begin, end, joined, replaced in found["losers"]
    )
    return Decision(value=found["value"], rule=Rule(found["rule"]), winner=found["winner"], losers=losers)
