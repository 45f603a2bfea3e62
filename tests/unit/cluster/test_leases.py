"""Who may change a namespace, by the leases that are recorded on a cluster."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.runs.leases import BrokerOverrides, ClusterRuns, Lease

NAMES = ("acme/orders", "acme/audit")
LEASES = st.builds(
    Lease,
    run=st.sampled_from(["a", "b"]),
    started=st.sampled_from(["monday", "tuesday"]),
    process=st.sampled_from(["", "host:7"]),
    expires=st.integers(0, 20).map(float),
)


@given(LEASES, LEASES, st.integers(0, 20).map(float))
def test_a_lease_keeps_every_other_run_out_until_it_expires(first: Lease, second: Lease, now: float) -> None:
    runs = ClusterRuns().with_leases(NAMES[:1], first, cluster="blue", now=now)
    if first.expires > now and not first.is_of_same_run(second):
        with pytest.raises(PreconditionFailed, match=f"{NAMES[0]} on blue is being changed by the run {first.run!r}"):
            runs.with_leases(NAMES, second, cluster="blue", now=now)
        assert runs.with_leases(NAMES[1:], second, cluster="blue", now=now).leases.keys() == {*NAMES}
    else:
        assert runs.with_leases(NAMES, second, cluster="blue", now=now).leases == dict.fromkeys(NAMES, second)
    assert NAMES[0] not in runs.without_run(first).leases


def test_runs_of_one_id_from_two_ledgers_are_two_runs() -> None:
    ours, theirs = (Lease(run="a", started=started, expires=10.0) for started in ("monday", "tuesday"))
    runs = ClusterRuns().with_leases(NAMES, ours, cluster="blue", now=0)
    assert runs.without_run(theirs) == runs
    with pytest.raises(PreconditionFailed, match="which began monday"):
        runs.with_leases(NAMES, theirs, cluster="blue", now=0)


def test_settings_of_the_brokers_stay_for_live_runs_only() -> None:
    leases = {NAMES[0]: Lease(run="live", started="", expires=10), NAMES[1]: Lease(run="dead", started="", expires=5)}
    brokers = BrokerOverrides(dynamic={}, effective={}, runs=("dead", "gone", "live", "own"))
    runs = ClusterRuns(leases=leases, brokers=brokers)
    assert runs.freezing(7.0, besides="own") == ("live",)
    assert runs.freezing(7.0, besides="live") == ()
    assert runs.freezing(3.0, besides="") == ("dead", "live")
