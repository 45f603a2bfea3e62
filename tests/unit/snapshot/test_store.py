from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pulsar_fleet.cluster.admin.partial_reads import CLUSTERS, Note
from pulsar_fleet.cluster.errors import InvalidRequest, NotFound
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.fingerprint_key import KEY_VARIABLE, open_redactor
from pulsar_fleet.snapshot.inventory import members
from pulsar_fleet.snapshot.model import (
    BrokerState,
    InventoryState,
    NamespaceState,
    Snapshot,
    SubscriptionState,
    TenantState,
    TopicState,
)
from pulsar_fleet.snapshot.resources import subscriptions_in_info
from pulsar_fleet.snapshot.store.reader import StoredSnapshot, load_snapshot, store_snapshot
from pulsar_fleet.snapshot.store.writer import SnapshotWriter

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
    with pytest.raises(InvalidRequest, match="write it as tenant/namespace"):
        Selection.parse(["acme/orders/events"])


def test_a_pattern_takes_what_it_matches_as_a_whole() -> None:
    selection = Selection.parse([r"re:acme/orders-\d+"])
    names = ("acme/orders-7", "acme/orders-7-old", "old-acme/orders-7", "acme/orders")
    assert [selection.has(NamespaceName.parse(name)) for name in names] == [True, False, False, False]


def test_a_pattern_for_everything_leaves_the_brokers_namespaces_out() -> None:
    assert not Selection.parse(["re:.*"]).has(NamespaceName.parse("pulsar/system"))


def test_a_pattern_that_is_no_regular_expression_is_rejected() -> None:
    with pytest.raises(InvalidRequest, match=r"'re:acme/\[' is not a valid regular .* for example re:acme/\.\*"):
        Selection.parse(["re:acme/["])


def test_a_selection_is_read_back_from_its_texts() -> None:
    selection = Selection.parse(["acme/orders", "globex", "re:a.*/b"])
    assert Selection.parse(selection.texts()) == selection


def test_what_was_selected_and_is_not_there_is_named() -> None:
    selection = Selection.parse(["acme/orders", "globex", "re:a.*/old", "re:acme/.*"])
    assert selection.absent(["acme"], [NamespaceName.parse("acme/new")]) == ("globex", "acme/orders", "re:a.*/old")


def test_the_brokers_own_cursors_are_no_subscriptions() -> None:
    cursor = {"markDelete": {"ledgerId": 4, "entryId": 2}}
    names = ("pulsar.repl.west", "pulsar.dedup", "__compaction", "billing%2Fall")
    subscriptions = subscriptions_in_info(EVENTS, {"cursors": dict.fromkeys(names, cursor)})
    assert [
        (subscription.name, subscription.mark_delete, subscription.replicated) for subscription in subscriptions
    ] == [("billing/all", "4:2", False)]


def test_a_snapshot_comes_back_from_its_files_as_it_was(tmp_path: Path) -> None:
    snapshot = Snapshot(
        cluster="blue",
        began="a",
        ended="b",
        key_id="k",
        selection=("acme",),
        known_clusters=("blue",),
        namespaces=(NamespaceState("acme/orders", {"replication_clusters": ["blue"], "é": None}),),
        topics=(
            TopicState(str(EVENTS), 3, {"team": "billing"}, terminated=True, partition_properties={"p-0": {"a": "b"}}),
        ),
        subscriptions=(
            SubscriptionState(str(EVENTS), str(EVENTS.partition(1)), "job", "1:2", True, {"selector": "a = 1"}),
        ),
        brokers=(BrokerState("localhost:8080", "4.2.4", {"clusterName": "blue"}),),
        notes=(Note("x", "deleted", "gone"),),
    )
    artefacts = Artefacts.open(str(tmp_path))
    assert load_snapshot(artefacts, store_snapshot(artefacts, "run", snapshot, name="source")) == snapshot


def test_a_table_of_an_earlier_release_is_read_without_its_new_column(tmp_path: Path) -> None:
    rows = (TopicState(str(EVENTS), 3, {"team": "billing"}), TopicState("persistent://acme/orders/x", 0, {}))
    cursor = SubscriptionState(str(EVENTS), str(EVENTS), "job", "1:2", False)
    snapshot = Snapshot(
        cluster="blue", began="", ended="", key_id="k", topics=rows, subscriptions=(cursor,), loaded_topics=False
    )
    artefacts = Artefacts.open(str(tmp_path))
    manifest = artefacts.read_json(store_snapshot(artefacts, "run", snapshot, name="source"))
    for table, column in (("topics", "partition_properties"), ("subscriptions", "acknowledged_ranges")):
        path = Path(manifest["tables"][table]["uri"])
        pq.write_table(pq.read_table(path).drop_columns([column]), path)
        content = path.read_bytes()
        manifest["tables"][table] |= {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
    earlier = StoredSnapshot.open(artefacts, artefacts.write_json("run", "earlier.json", manifest))
    assert earlier.load() == snapshot
    columns = earlier.columns("topics", ("name", "partition_properties"), ["acme/orders"])
    assert columns.column("partition_properties").to_pylist() == ["{}", "{}"]


def test_namespaces_are_loaded_without_the_others(tmp_path: Path) -> None:
    names = [f"acme/orders-{number:03}" for number in range(200)]
    snapshot = Snapshot(
        cluster="blue",
        began="",
        ended="",
        key_id="k",
        tenants=(TenantState("acme", (), ("blue",)),),
        namespaces=tuple(NamespaceState(name, {"deduplicationEnabled": True}) for name in names),
        topics=tuple(TopicState(f"persistent://{name}/t{number:02}", 0, {}) for name in names for number in range(50)),
        inventory=(InventoryState("client", names[7], "Pulsar-Java-v4.2.4", {"producers": 1}),),
    )
    artefacts = Artefacts.open(str(tmp_path))
    stored = StoredSnapshot.open(artefacts, store_snapshot(artefacts, "run", snapshot, name="source"))
    selected = [names[7], names[170], "acme/none"]
    part = stored.load(selected)
    assert stored.namespaces() == tuple(names)
    assert part.tenants == snapshot.tenants
    assert [namespace.name for namespace in part.namespaces] == selected[:2]
    assert part.topics == tuple(
        topic for topic in snapshot.topics if topic.name.split("/", 2)[2].startswith(tuple(selected))
    )
    assert part.inventory == snapshot.inventory
    assert stored.load_without_namespaces().topics == ()


def test_a_snapshot_that_was_not_finished_cannot_be_loaded(tmp_path: Path) -> None:
    artefacts = Artefacts.open(str(tmp_path))
    reference = store_snapshot(artefacts, "run", Snapshot(cluster="b", began="", ended="", key_id="k"), name="source")
    with SnapshotWriter(artefacts, "run", name="source") as writer:
        writer.add([TopicState(str(EVENTS), 3, {})])
    with pytest.raises(NotFound, match=r"manifest\.json cannot be read"):
        load_snapshot(artefacts, reference)


def test_a_manifest_tells_what_the_snapshot_is_of(tmp_path: Path) -> None:
    artefacts = Artefacts.open(str(tmp_path))
    snapshot = Snapshot(
        cluster="blue",
        began="a",
        ended="b",
        key_id="k",
        brokers=(BrokerState("localhost:8080", "4.2.4", {}),),
        notes=(Note(CLUSTERS, "unreadable", "not for this role"),),
    )
    manifest = artefacts.read_json(store_snapshot(artefacts, "run", snapshot, name="source"))
    assert (manifest["schema_version"], manifest["cluster"], manifest["complete"]) == (2, "blue", False)
    assert manifest["brokers"] == [{"address": "localhost:8080", "version": "4.2.4"}]
    assert len(manifest["tables"]["topics"]["sha256"]) == 64


def test_members_of_a_large_answer_are_read_one_by_one() -> None:
    documents = {"a/b": {"0x0": {"persistent": {}}}, 'q"uote': [], "é": None}
    for text in (json.dumps(documents), json.dumps(documents, indent=2), "{}"):
        assert dict(members(text)) == json.loads(text)


def test_an_altered_table_is_not_loaded(tmp_path: Path) -> None:
    artefacts = Artefacts.open(str(tmp_path))
    snapshot = Snapshot(cluster="blue", began="", ended="", key_id="k")
    reference = store_snapshot(artefacts, "run", snapshot, name="source")
    (tmp_path / "run" / "source" / "topics.parquet").write_bytes(b"else")
    with pytest.raises(InvalidRequest, match="was altered"):
        load_snapshot(artefacts, reference)


def test_the_key_of_an_installation_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    assert open_redactor() == open_redactor()


def test_a_short_key_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "short")
    with pytest.raises(InvalidRequest, match="at least 16"):
        open_redactor()


def test_the_key_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "a key that nobody may see")
    assert "nobody" not in repr(open_redactor())
