"""The order of retention and backlog quota, against the rules that a broker was measured to follow."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.planning.build import plan_changes
from pulsar_fleet.planning.plan import Change, Hazard
from pulsar_fleet.snapshot.model import NamespaceState, Snapshot, TenantState, TopicPolicyState, TopicState

MB = 1 << 20
EVENTS = "persistent://acme/orders/events"
STORAGE, AGE = "destination_storage", "message_age"
TYPES = (STORAGE, AGE)
Values = dict[str, Any]
"""`retention`, and a quota by type; without what is not set."""


def retention(minutes: int, megabytes: int) -> dict[str, int]:
    return {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}


def quota(megabytes: int, minutes: int = -1) -> dict[str, Any]:
    size, seconds = (limit * unit if limit > 0 else -1 for limit, unit in ((megabytes, MB), (minutes, 60)))
    return {"limitSize": size, "limitTime": seconds, "policy": "producer_exception"}


@dataclass
class Broker:
    """The measured rules of 4.2.4: `checkBacklogQuota` and what the setters give it."""

    namespace: Values = field(default_factory=dict)
    topic: Values = field(default_factory=dict)

    def accepts(self, *, topic: bool) -> bool:
        """Whether what is stored at one level would be accepted by its setters."""
        values = self.topic if topic else self.namespace
        types = TYPES if topic else (STORAGE,)
        return all(self._fits(self._effective(kind, topic), self._effective("retention", topic)) for kind in types) or (
            not values
        )

    def send(self, call: Call) -> None:
        topic = call.path.startswith("/persistent/")
        values = self.topic if topic else self.namespace
        if call.path.endswith("/retention"):
            for kind in TYPES if topic else (STORAGE,):
                assert call.method == "DELETE" or self._fits(self._effective(kind, topic), call.body), call
            self._store(values, "retention", call.body)
        elif call.path.endswith("/backlogQuota"):
            kind = dict(call.params)["backlogQuotaType"]
            assert call.method == "DELETE" or self._quota_fits(kind, call.body, topic), call
            self._store(values, kind, call.body)

    def _quota_fits(self, kind: str, value: Any, topic: bool) -> bool:
        return (not topic and kind == AGE) or self._fits(value, self._effective("retention", topic))

    def _effective(self, name: str, topic: bool) -> Any:
        shared = self.namespace.get(name)
        return self.topic.get(name, shared) if topic else shared

    @staticmethod
    def _fits(value: Any, kept: Any) -> bool:
        if not kept or not value:
            return True
        size, minutes = kept["retentionSizeInMB"], kept["retentionTimeInMinutes"]
        return not (
            (size > 0 and value["limitSize"] >= size * MB) or (minutes > 0 and value["limitTime"] >= minutes * 60)
        )

    @staticmethod
    def _store(values: Values, name: str, value: Any) -> None:
        values.pop(name, None)
        if value is not None:
            values[name] = value


def holding(cluster: str, namespace: Values, topic: Values) -> Snapshot:
    documents = [
        {names[0]: values.get("retention"), names[1]: {kind: values[kind] for kind in TYPES if kind in values}}
        for values, names in (
            (namespace, ("retention_policies", "backlog_quota_map")),
            (topic, ("retentionPolicies", "backLogQuotaMap")),
        )
    ]
    return Snapshot(
        cluster=cluster,
        began="",
        ended="",
        key_id="k",
        known_clusters=("blue", "green"),
        tenants=(TenantState("acme", (), (cluster,)),),
        namespaces=(NamespaceState("acme/orders", {"replication_clusters": [cluster], **documents[0]}),),
        topics=(TopicState(EVENTS, 0, {}),),
        topic_policies=(TopicPolicyState(EVENTS, "local", documents[1], 1),),
    )


def planned(ours: tuple[Values, Values], theirs: tuple[Values, Values]) -> tuple[Change, ...]:
    return plan_changes(holding("blue", *ours), holding("green", *theirs)).changes


retentions = st.one_of(
    st.just(retention(0, 0)), st.builds(retention, st.sampled_from([-1, 60, 600]), st.sampled_from([-1, 100, 1000]))
)
quotas = st.builds(quota, st.sampled_from([-1, 50, 500]), st.sampled_from([-1, 30, 300]))
values = st.fixed_dictionaries({}, optional={"retention": retentions, STORAGE: quotas, AGE: quotas})
estates = st.tuples(values, values)


SMALL = {"retention": retention(60, 100), STORAGE: quota(50)}
LARGE = {"retention": retention(60, 1000), STORAGE: quota(500)}
LONG = {"retention": retention(600, 100), STORAGE: quota(50)}
AMPLE = {"retention": retention(600, 1000), STORAGE: quota(500)}


@given(ours=estates, theirs=estates)
@example(ours=(LARGE, {}), theirs=(LONG, {}))
@example(ours=({}, SMALL), theirs=({}, AMPLE))
@example(ours=({}, LARGE), theirs=(LONG, {}))
def test_a_broker_accepts_each_call_of_a_plan(ours: tuple[Values, Values], theirs: tuple[Values, Values]) -> None:
    for estate in (ours, theirs):
        assume(all(Broker(*estate).accepts(topic=topic) for topic in (False, True)))
    broker = Broker(*map(dict, theirs))
    for change in planned(ours, theirs):
        for call in change.calls:
            broker.send(call)
    assert (broker.namespace, broker.topic) == ours


def test_a_retention_that_has_to_rise_first_is_shown_with_its_end() -> None:
    raised, limited, lowered = planned((LARGE, {}), (LONG, {}))
    assert (raised.after, raised.hazard) == (retention(600, 1000), Hazard.REVERSIBLE)
    assert limited.field == "backlog_quota_map"
    assert (lowered.before, lowered.after) == (retention(600, 1000), retention(60, 1000))
    assert (lowered.hazard, "retention is shorter" in lowered.reason) == (Hazard.IRREVERSIBLE, True)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (AMPLE, SMALL),
        (SMALL, AMPLE),
        ({"retention": retention(60, -1), AGE: quota(-1, 300)}, {"retention": retention(-1, 100), AGE: quota(-1, 30)}),
    ],
)
def test_where_an_order_is_accepted_nothing_rises_meanwhile(ours: Values, theirs: Values) -> None:
    fields = [change.field for change in planned((ours, {}), (theirs, {}))]
    assert sorted(fields) == ["backlog_quota_map", "retention_policies"]
