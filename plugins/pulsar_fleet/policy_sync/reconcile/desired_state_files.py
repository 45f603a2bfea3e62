"""Desired state as YAML: one file for each tenant and namespace, in which comments and order are the writer's."""

from __future__ import annotations

import difflib
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.lookup import BY_FIELD
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD, Form, Scope
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.fingerprint_key import open_seal
from pulsar_fleet.planning.diff_entry import Resource, same
from pulsar_fleet.policy_sync.merge.fields import CLUSTERS, ROLES, Values, namespace_document, values_of_document
from pulsar_fleet.policy_sync.merge.scan import look
from pulsar_fleet.policy_sync.merge.view import Item, items_of, place

_WIDTH = 120


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export did: files that are new or changed, files that were right, files of what is not there."""

    written: tuple[str, ...]
    unchanged: int
    stale: tuple[str, ...]


def export(items: Mapping[Item, Values], folder: Path) -> Exported:
    """Write what a cluster holds; again for the same changes no byte, and a file keeps its comments and its order.

    No file is deleted: of what the cluster does not have (any more) the files are named.
    """
    written: list[str] = []
    documents = dict(_documents(items))
    for name, document in sorted(documents.items()):
        path = folder / name
        before = path.read_text() if path.exists() else ""
        after = _merged(before, document, name)
        if after != before:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(after)
            written.append(name)
    stale = sorted({str(path.relative_to(folder)) for path in _files(folder)} - set(documents))
    return Exported(tuple(written), len(documents) - len(written), tuple(stale))


def load(folder: Path) -> dict[Item, Values]:
    """Read the desired state; a file that cannot be meant is `InvalidRequest` with its name, and nothing is changed."""
    found: dict[Item, Values] = {}
    for path in _files(folder):
        name = str(path.relative_to(folder))
        document = _parsed(path.read_text(), name)
        try:
            found |= _tenant(document, name) if "tenant" in document else _namespace(document, name)
        except (AttributeError, TypeError) as error:
            raise InvalidRequest(f"{name}: a value has not the shape that its policy has: {error}.") from error
    if not found:
        raise InvalidRequest(
            f"There is no desired state in {str(folder)!r}: make it with: pulsar-fleet export CLUSTER {folder}"
        )
    return found


def _documents(items: Mapping[Item, Values]) -> Iterator[tuple[str, JsonObject]]:
    topics: dict[str, JsonObject] = {}
    for item, values in sorted(items.items()):
        if item[0] is Resource.TOPIC_POLICY and values:
            topics.setdefault(place(item)[1], {})[item[1]] = _by_scope(values)
    for item, values in items.items():
        if item[0] is Resource.TOPIC_POLICY:
            continue
        _safe(item[1])
        if item[0] is Resource.TENANT:
            yield f"{item[1]}.yaml", {"tenant": item[1], **values}
        else:
            document = {"namespace": item[1], "policies": namespace_document(values)}
            yield f"{item[1]}.yaml", document | ({"topics": topics[item[1]]} if item[1] in topics else {})


def _by_scope(values: Values) -> JsonObject:
    found: JsonObject = {}
    for field, value in sorted(values.items()):
        scope, _, policy = field.partition("/")
        found.setdefault(scope, {})[policy] = value
    return found


def _tenant(document: JsonObject, name: str) -> dict[Item, Values]:
    _only(document, ("tenant", ROLES, CLUSTERS), name)
    _belongs(document["tenant"], name)
    return {(Resource.TENANT, document["tenant"]): {key: sorted(document.get(key) or ()) for key in (ROLES, CLUSTERS)}}


def _namespace(document: JsonObject, name: str) -> dict[Item, Values]:
    _only(document, ("namespace", "policies", "topics"), name)
    if "namespace" not in document:
        raise InvalidRequest(f"{name}: neither 'tenant' nor 'namespace' says what it is about.")
    namespace = NamespaceName.parse(document["namespace"])
    _belongs(str(namespace), name)
    policies = document.get("policies") or {}
    _only(policies, tuple(BY_FIELD), f"{name}: policies")
    found: dict[Item, Values] = {(Resource.NAMESPACE, str(namespace)): values_of_document(policies)}
    for topic, scopes in (document.get("topics") or {}).items():
        if TopicName.parse(topic).namespace != namespace:
            raise InvalidRequest(f"{name}: topic {topic!r} lies in another namespace: move it to that one's file.")
        found[Resource.TOPIC_POLICY, topic] = _topic(scopes or {}, f"{name}: {topic}")
    return found


def _topic(scopes: JsonObject, where: str) -> Values:
    _only(scopes, tuple(scope.value for scope in Scope), where)
    found: Values = {}
    for scope, policies in scopes.items():
        _only(policies, tuple(TOPIC_BY_FIELD), f"{where}: {scope}")
        for policy, value in policies.items():
            in_any_order = TOPIC_BY_FIELD[policy].form in (Form.NAMES, Form.CLUSTER_LIST)
            found[f"{scope}/{policy}"] = sorted(value) if in_any_order else value
    return {field: value for field, value in found.items() if value not in (None, [], {})}


def _only(document: Json, known: tuple[str, ...], where: str) -> None:
    if not isinstance(document, dict):
        raise InvalidRequest(f"{where}: {document!r} is not a mapping.")
    for key in document:
        if key not in known:
            meant = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean {meant[0]!r}?" if meant else f"known are {', '.join(sorted(known))}."
            raise InvalidRequest(f"{where}: {key!r} is not known; {hint}")


def _belongs(resource: str, name: str) -> None:
    """A copied file that still names its original would silently overrule that one."""
    if f"{resource}.yaml" != name:
        raise InvalidRequest(
            f"{name}: it is about {resource!r}, whose file is {resource}.yaml: correct one of the two."
        )


def _safe(resource: str) -> None:
    """Names may consist of dots alone, which would lead out of the folder."""
    if any(not part.strip(".") for part in resource.split("/")):
        raise InvalidRequest(f"{resource!r} cannot be the name of a file, so it is not exported.")


def _files(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.yaml"), *folder.glob("*/*.yaml")])


def _parsed(text: str, name: str) -> JsonObject:
    try:
        found = YAML(typ="rt").load(text)
        plain: Any = json.loads(json.dumps(found))
    except (YAMLError, TypeError) as error:
        raise InvalidRequest(f"{name} is no YAML that can be used: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(plain, dict):
        raise InvalidRequest(f"{name} is not a mapping: write 'tenant: …' or 'namespace: …' first.")
    return plain


def _merged(before: str, document: JsonObject, name: str) -> str:
    yaml = YAML(typ="rt")
    yaml.width = _WIDTH
    yaml.preserve_quotes = True
    if before and same(_shaped(_parsed(before, name), name), _shaped(document, name)):
        return before
    kept = yaml.load(before) if before else {}
    _update(kept, document)
    out = io.StringIO()
    yaml.dump(kept, out)
    return out.getvalue()


def _shaped(document: JsonObject, name: str) -> Json:
    """A document as what it means, so that the order of a list is no difference."""
    read = _tenant if "tenant" in document else _namespace
    return {" ".join(item): values for item, values in read(document, name).items()}


def _update(kept: Any, wanted: JsonObject) -> None:
    """Change only what differs, in place: what is kept keeps its comments."""
    for key in [key for key in kept if key not in wanted]:
        del kept[key]
    for key, value in wanted.items():
        old = kept.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            _update(old, value)
        elif key not in kept or not _alike(old, value):
            kept[key] = value


def _alike(old: Json, value: Json) -> bool:
    if isinstance(old, list) and isinstance(value, list):
        return sorted(map(json.dumps, old)) == sorted(map(json.dumps, value))
    return same(old, value)


async def export_cluster(
    connection: ClusterConnection, selection: Selection, folder: Path, *, topics: bool = True
) -> JsonObject:
    """Write or update the files of what is selected; again for the same state changes no byte.

    Secrets stand there as fingerprints, which only this installation can compare; they are never written back from a
    file alone.

    :returns: `{"cluster", "written", "unchanged", "stale", "calls"}`.
    :raises Refused: something could not be read, so its file would be wrong.
    """
    async with AdminClient(connection) as admin:
        seen = await look(admin, selection, open_seal(), topics=topics)
    if seen.unread:
        raise PreconditionFailed(
            f"{seen.snapshot.cluster} did not let everything be read, first {min(seen.unread)}: no file was written."
        )
    own = seen.snapshot.cluster
    found = export(items_of(seen.snapshot, seen.snapshot.known_clusters), folder)
    return {
        "cluster": own,
        "written": list(found.written),
        "unchanged": found.unchanged,
        "stale": list(found.stale),
        "calls": seen.calls,
    }
