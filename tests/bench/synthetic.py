"""An estate of any size that no cluster has to hold: `python -m tests.bench.synthetic STEP FOLDER`, in a fresh process.

Prints the seconds that the step took and the most memory that the process ever had, in MB.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pulsar_fleet.cluster.policies.topic_policies import TOPIC_CATALOGUE
from pulsar_fleet.ledger.artefacts import Artefacts, Reference
from pulsar_fleet.snapshot.model import (
    BrokerState,
    NamespaceState,
    Row,
    SchemaState,
    SnapshotHeader,
    SubscriptionState,
    TenantState,
    TopicPolicyState,
    TopicState,
)
from pulsar_fleet.snapshot.store.reader import StoredSnapshot, load_snapshot
from pulsar_fleet.snapshot.store.writer import ROWS_PER_GROUP, SnapshotWriter
from pulsar_fleet.verification.snapshots.compare import CompareRequest, compare_in_process, compare_snapshots

NAMESPACES = int(os.environ.get("PULSAR_FLEET_BENCH_SYNTHETIC_NAMESPACES", "1000"))
TOPICS = 100
SIDES = ("blue", "green")


@dataclass(frozen=True)
class Different:
    """How many namespaces differ in percent, spread evenly, and how many topics in each."""

    namespaces: int
    topics: int

    @property
    def name(self) -> str:
        """Of the snapshot."""
        return f"green-{self.namespaces}-{self.topics}"


DIFFERENT = (Different(1, 1), Different(10, 1), Different(10, TOPICS))
POLICIES = {
    "auth_policies": {"namespace_auth": {f"role-{number}": ["produce", "consume"] for number in range(5)}},
    "backlog_quota_map": {
        "destination_storage": {"limitSize": 1 << 30, "limitTime": -1, "policy": "producer_exception"}
    },
    "bundles": {"boundaries": ["0x00000000", "0x40000000", "0x80000000", "0xffffffff"], "numBundles": 4},
    "retention_policies": {"retentionTimeInMinutes": 10_080, "retentionSizeInMB": 10_240},
    "persistence": {"bookkeeperEnsemble": 3, "bookkeeperWriteQuorum": 3, "bookkeeperAckQuorum": 2},
    "message_ttl_in_seconds": 604_800,
    "schema_compatibility_strategy": "FULL",
    "is_allow_auto_update_schema": True,
    "properties": {"owner": "billing"},
}
READ = {
    "namespaces": ["name", "policies"],
    "topics": ["name", "partitions", "properties"],
    "schemas": ["topic", "version", "type", "schema", "properties"],
    "subscriptions": ["topic", "name", "replicated", "properties"],
    "topic_policies": ["topic", "scope", "policies"],
}
GROUPS_AT_ONCE = 25
FIELDS = [{"name": f"field_{number}", "type": ["null", "string"], "default": None} for number in range(10)]


def write(artefacts: Artefacts) -> None:
    """Store the estate as a snapshot of each side, piece by piece as the collector would."""
    for side in SIDES:
        with SnapshotWriter(artefacts, "bench", name=side) as writer:
            writer.add(
                [BrokerState("localhost:8080", "4.2.4", {"clusterName": side}), TenantState("acme", (), (side,))]
            )
            for number in range(NAMESPACES):
                writer.add([*_namespace(f"acme/orders-{number:05}", side)])
            writer.finish(SnapshotHeader(cluster=side, began="", ended="", key_id="k", known_clusters=(side,)))


def load(artefacts: Artefacts) -> None:
    """One side whole, as a small fleet may."""
    assert len(load_snapshot(artefacts, reference(artefacts, "blue")).topics) == NAMESPACES * TOPICS


def batches(artefacts: Artefacts) -> None:
    """One side, 50 namespaces at a time."""
    stored = StoredSnapshot.open(artefacts, reference(artefacts, "blue"))
    names = stored.namespaces()
    parts = (stored.load(names[first : first + 50]) for first in range(0, len(names), 50))
    assert sum(len(part.topics) for part in parts) == NAMESPACES * TOPICS


def compare(artefacts: Artefacts) -> None:
    """Both sides, in batches, in this process."""
    source, target = (reference(artefacts, side) for side in SIDES)
    comparison = compare_snapshots(CompareRequest(source=source, target=target), compare_in_process)
    assert comparison.equal, comparison.first


def differ(artefacts: Artefacts) -> None:
    """Targets beside green in which other owners are told of some topics; all but that is green's."""
    for difference in DIFFERENT:
        _with_other_owners(artefacts, difference)


def floor(artefacts: Artefacts) -> None:
    """Bare reading of what a comparison has to read of both sides, with nothing made of it."""
    import pyarrow.parquet as pq

    for side in SIDES:
        for table, columns in READ.items():
            with pq.ParquetFile(artefacts.folder("bench") / side / f"{table}.parquet") as file:
                groups = range(0, file.num_row_groups, GROUPS_AT_ONCE)
                for first in groups:
                    some = range(first, min(first + GROUPS_AT_ONCE, file.num_row_groups))
                    assert file.read_row_groups([*some], columns=columns, use_threads=False).num_rows


def nothing(_: Artefacts) -> None:
    """What the imports alone take."""
    import pyarrow.parquet

    assert pyarrow.parquet


STEPS: Mapping[str, Callable[[Artefacts], None]] = {
    "nothing": nothing,
    "write": write,
    "load": load,
    "batches": batches,
    "floor": floor,
    "compare": compare,
    "differ": differ,
}


def _namespace(name: str, side: str) -> Iterator[Row]:
    yield NamespaceState(name, {**POLICIES, "replication_clusters": [side]})
    for number in range(TOPICS):
        yield from _topic(f"persistent://{name}/topic-{number:05}", number)


def _topic(topic: str, number: int) -> Iterator[Row]:
    yield TopicState(topic, 0, {"team": f"team-{number % 7}"})
    schema = {"type": "record", "name": f"Order{number}", "namespace": topic.split("/")[3], "fields": FIELDS}
    yield SchemaState(topic, 0, "AVRO", json.dumps(schema), {}, 1_700_000_000_000 + number)
    for name in ("billing", "audit"):
        yield SubscriptionState(topic, topic, name, f"{number}:{number + 7}", False)
    if number % 10 == 0:
        policies = {policy.field: None for policy in TOPIC_CATALOGUE} | {"maxProducerPerTopic": number + 1}
        yield TopicPolicyState(topic, "local", policies, 1_700_000_000_000 + number)


def _with_other_owners(artefacts: Artefacts, difference: Different) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    manifest = artefacts.read_json(reference(artefacts, "green"))
    path = artefacts.folder("bench") / difference.name / "topics.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = pq.read_table(manifest["tables"]["topics"]["uri"])
    namespace, topic = np.divmod(np.arange(whole.num_rows), TOPICS)
    other = (namespace % (100 // difference.namespaces) == 0) & (topic < difference.topics)
    column = whole.schema.get_field_index("properties")
    properties = pc.if_else(pa.array(other), '{"team": "another"}', whole.column(column))
    pq.write_table(
        whole.set_column(column, whole.schema.field(column), properties),
        path,
        row_group_size=ROWS_PER_GROUP,
        compression="zstd",
    )
    content = path.read_bytes()
    manifest["tables"]["topics"] = Reference(str(path), hashlib.sha256(content).hexdigest(), len(content)).to_json()
    artefacts.write("bench", f"{difference.name}/manifest.json", json.dumps(manifest).encode())


def reference(artefacts: Artefacts, side: str) -> Reference:
    manifest = artefacts.find("bench", f"{side}/manifest.json")
    assert manifest is not None
    return manifest


def _most_memory() -> float:
    # Not `ru_maxrss`: a new process inherits there what its parent had.
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    step, folder = sys.argv[1:]
    began = time.monotonic()
    STEPS[step](Artefacts.open(folder))
    sys.stdout.write(f"{time.monotonic() - began:.2f} {_most_memory():.0f}\n")
