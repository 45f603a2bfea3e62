from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_fleet.cluster.errors import Rejected
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.snapshot import cursors_of
from pulsar_fleet.cluster.states import BrokerState, NamespaceState, Note, Selection, Snapshot, TopicState
from pulsar_fleet.records.artefacts import Artefacts
from pulsar_fleet.records.fingerprint_key import KEY_VARIABLE, open_seal
from pulsar_fleet.records.snapshots import load_snapshot, store_snapshot

EVENTS = TopicName.parse("persistent://acme/orders/events")


def parsed(*names: str) -> list[bool]:
    selection = Selection.parse(["acme/orders", "globex"])
    return [selection.has(NamespaceName.parse(name)) for name in names]


def test_a_selection_takes_named_namespaces_and_all_of_named_tenants() -> None:
    assert parsed("acme/orders", "acme/audit", "globex/anything") == [True, False, True]


def test_an_empty_selection_takes_all_but_the_brokers_own() -> None:
    names = ("acme/orders", "pulsar/system")
    assert [Selection().has(NamespaceName.parse(name)) for name in names] == [True, False]


def test_a_selection_that_is_no_name_is_rejected() -> None:
    with pytest.raises(Rejected, match="write it as tenant/namespace"):
        Selection.parse(["acme/orders/events"])


def test_the_brokers_own_cursors_are_no_subscriptions() -> None:
    cursor = {"markDelete": {"ledgerId": 4, "entryId": 2}}
    names = ("pulsar.repl.west", "pulsar.dedup", "__compaction", "billing%2Fall")
    found = cursors_of(EVENTS, {"cursors": dict.fromkeys(names, cursor)})
    assert [(one.name, one.mark_delete, one.replicated) for one in found] == [("billing/all", "4:2", False)]


def test_a_snapshot_comes_back_from_its_files_as_it_was(tmp_path: Path) -> None:
    snapshot = Snapshot(
        cluster="blue",
        began="a",
        ended="b",
        key_id="k",
        selection=("acme",),
        known_clusters=("blue",),
        namespaces=(NamespaceState("acme/orders", {"replication_clusters": ["blue"], "é": None}),),
        topics=(TopicState(str(EVENTS), 3, {"team": "billing"}, terminated=True),),
        brokers=(BrokerState("localhost:8080", "4.2.4", {"clusterName": "blue"}),),
        notes=(Note("x", "vanished", "gone"),),
    )
    artefacts = Artefacts.open(str(tmp_path))
    assert load_snapshot(artefacts, store_snapshot(artefacts, "run", snapshot, name="source")) == snapshot


def test_an_altered_table_is_not_loaded(tmp_path: Path) -> None:
    artefacts = Artefacts.open(str(tmp_path))
    snapshot = Snapshot(cluster="blue", began="", ended="", key_id="k")
    reference = store_snapshot(artefacts, "run", snapshot, name="source")
    (tmp_path / "run" / "source" / "topics.parquet").write_bytes(b"else")
    with pytest.raises(Rejected, match="was altered"):
        load_snapshot(artefacts, reference)


def test_the_key_of_an_installation_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    assert open_seal() == open_seal()


def test_a_short_key_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "short")
    with pytest.raises(Rejected, match="at least 16"):
        open_seal()


def test_the_key_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "a key that nobody may see")
    assert "nobody" not in repr(open_seal())
