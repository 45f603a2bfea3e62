"""Desired state as YAML: one file per tenant and namespace; an export keeps the comments and the order of the file."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import Comment, CommentedMap, CommentedSeq, Format
from ruamel.yaml.error import YAMLError

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.model import TopicPolicyField
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD, Form, Scope
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.cluster.text import did_you_mean
from pulsar_fleet.ledger.fingerprint_key import open_redactor
from pulsar_fleet.planning.diff_entry import Resource, same
from pulsar_fleet.policy_sync.merge.fields import (
    CLUSTERS,
    ROLES,
    Values,
    namespace_document,
    values_of_document,
)
from pulsar_fleet.policy_sync.merge.scan import scan_cluster
from pulsar_fleet.policy_sync.merge.view import Item, items_of, tenant_and_namespace

_WIDTH = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported(Document):
    """The result of an export: new and changed files, the number of unchanged ones, files without a resource.

    :param calls: admin calls.
    """

    cluster: str = ""
    written: tuple[str, ...]
    unchanged: int
    stale: tuple[str, ...]
    calls: int = 0


def export(items: Mapping[Item, Values], folder: Path) -> Exported:
    """Write the resources of a cluster; a second export of the same state changes no byte.

    No file is deleted: `stale` names the files whose resource the cluster does not have.
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
    return Exported(written=tuple(written), unchanged=len(documents) - len(written), stale=tuple(stale))


def load(folder: Path) -> dict[Item, Values]:
    """Read the desired state; a file that is not valid is `InvalidRequest` with its name."""
    items: dict[Item, Values] = {}
    for path in _files(folder):
        name = str(path.relative_to(folder))
        document = _parsed(path.read_text(), name)
        try:
            items |= _tenant(document, name) if "tenant" in document else _namespace(document, name)
        except (AttributeError, TypeError) as error:
            raise InvalidRequest(f"{name}: a value does not have the shape of its policy: {error}.") from error
    if not items:
        raise InvalidRequest(
            f"There is no desired state in {str(folder)!r}: create it with: pulsar-fleet export CLUSTER {folder}"
        )
    return items


def _documents(items: Mapping[Item, Values]) -> Iterator[tuple[str, JsonObject]]:
    topics: dict[str, JsonObject] = {}
    for item, values in sorted(items.items()):
        if item[0] is Resource.TOPIC_POLICY and values:
            topics.setdefault(tenant_and_namespace(item)[1], {})[item[1]] = _by_scope(values)
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
    scopes: JsonObject = {}
    for text, value in sorted(values.items()):
        field = TopicPolicyField.parse(text)
        scopes.setdefault(field.scope.value, {})[field.policy] = value
    return scopes


def _tenant(document: JsonObject, name: str) -> dict[Item, Values]:
    _only(document, ("tenant", ROLES, CLUSTERS), name)
    _belongs(document["tenant"], name)
    return {(Resource.TENANT, document["tenant"]): {key: sorted(document.get(key) or ()) for key in (ROLES, CLUSTERS)}}


def _namespace(document: JsonObject, name: str) -> dict[Item, Values]:
    _only(document, ("namespace", "policies", "topics"), name)
    if "namespace" not in document:
        raise InvalidRequest(f"{name}: the key 'tenant' or 'namespace' is missing.")
    namespace = NamespaceName.parse(document["namespace"])
    _belongs(str(namespace), name)
    policies = document.get("policies") or {}
    _only(policies, tuple(BY_FIELD), f"{name}: policies")
    items: dict[Item, Values] = {(Resource.NAMESPACE, str(namespace)): values_of_document(policies)}
    for topic, scopes in (document.get("topics") or {}).items():
        if TopicName.parse(topic).namespace != namespace:
            raise InvalidRequest(f"{name}: topic {topic!r} is in another namespace: move it to that file.")
        items[Resource.TOPIC_POLICY, topic] = _topic(scopes or {}, f"{name}: {topic}")
    return items


def _topic(scopes: JsonObject, where: str) -> Values:
    _only(scopes, tuple(scope.value for scope in Scope), where)
    values: Values = {}
    for scope, policies in scopes.items():
        _only(policies, tuple(TOPIC_BY_FIELD), f"{where}: {scope}")
        for policy, value in policies.items():
            in_any_order = TOPIC_BY_FIELD[policy].form in (Form.NAMES, Form.CLUSTER_LIST)
            values[str(TopicPolicyField(Scope(scope), policy))] = sorted(value) if in_any_order else value
    return {field: value for field, value in values.items() if value not in (None, [], {})}


def _only(document: Json, keys: tuple[str, ...], where: str) -> None:
    if not isinstance(document, dict):
        raise InvalidRequest(f"{where}: {document!r} is not a mapping.")
    for key in document:
        if key not in keys:
            hint = did_you_mean(str(key), keys, f"known are {', '.join(sorted(keys))}.")
            raise InvalidRequest(f"{where}: {key!r} is not known; {hint}")


def _belongs(resource: str, name: str) -> None:
    """A copied file that still names the original resource would overrule its file without a message."""
    if f"{resource}.yaml" != name:
        raise InvalidRequest(
            f"{name}: the file describes {resource!r}, whose file is {resource}.yaml: correct one of the two."
        )


def _safe(resource: str) -> None:
    """A name that consists of dots would lead out of the folder."""
    if any(not part.strip(".") for part in resource.split("/")):
        raise InvalidRequest(f"{resource!r} cannot be the name of a file, so it is not exported.")


def _files(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.yaml"), *folder.glob("*/*.yaml")])


def _parsed(text: str, name: str) -> JsonObject:
    try:
        plain: Any = json.loads(json.dumps(YAML(typ="rt").load(text)))
    except (YAMLError, TypeError) as error:
        raise InvalidRequest(f"{name} is not valid YAML: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(plain, dict):
        raise InvalidRequest(f"{name} is not a mapping: begin it with 'tenant: …' or 'namespace: …'.")
    return plain


def _merged(before: str, document: JsonObject, name: str) -> str:
    yaml = YAML(typ="rt")
    yaml.width = _WIDTH
    yaml.preserve_quotes = True
    if before and same(_shaped(_parsed(before, name), name), _shaped(document, name)):
        return before
    existing = yaml.load(before) if before else CommentedMap()
    _update(existing, document, frozenset(node for node, places in _places(existing).items() if places > 1))
    out = io.StringIO()
    yaml.dump(existing, out)
    return out.getvalue()


def _shaped(document: JsonObject, name: str) -> Json:
    """The values of a document, in which the order of a list makes no difference."""
    read = _tenant if "tenant" in document else _namespace
    return {" ".join(item): values for item, values in read(document, name).items()}


def _update(existing: Any, document: JsonObject, shared: frozenset[int]) -> None:
    """Change only differing values, in place: the others keep their comments.

    :param shared: the nodes that are at several places of the file, by aliases or merge keys: a change at one place
        must not reach the others, so it gets a copy there.
    """
    for key in [key for key in existing if key not in document]:
        del existing[key]
    for key, value in document.items():
        old = existing.get(key)
        if key in existing and _equal(old, value):
            continue
        if isinstance(old, CommentedMap) and isinstance(value, dict):
            if id(old) in shared or old.merge:
                existing[key] = old = _copy(old)
            _update(old, value, shared)
        else:
            existing[key] = value


def _places(node: Any) -> Counter[int]:
    """Mapping or list, by its identity → at how many places of the file it is; what is below a merge key counts too."""
    places: Counter[int] = Counter()
    if isinstance(node, CommentedMap | CommentedSeq):
        places[id(node)] += 1
        merged = node.merge if isinstance(node, CommentedMap) else ()
        for child in (*merged, *(node.values() if isinstance(node, CommentedMap) else node)):
            places += _places(child)
    return places


def _copy(node: Any) -> Any:
    """A node that shares nothing with the rest of its file: with its comments, without anchors and merge keys."""
    if isinstance(node, CommentedMap):
        copy: Any = CommentedMap((key, _copy(value)) for key, value in node.items())
    elif isinstance(node, CommentedSeq):
        copy = CommentedSeq(map(_copy, node))
    else:
        return json.loads(json.dumps(node))
    for attribute in (Comment.attrib, Format.attrib):
        if hasattr(node, attribute):
            setattr(copy, attribute, deepcopy(getattr(node, attribute)))
    return copy


def _equal(old: Json, value: Json) -> bool:
    if isinstance(old, list) and isinstance(value, list):
        return sorted(map(json.dumps, old)) == sorted(map(json.dumps, value))
    if isinstance(old, dict) and isinstance(value, dict):
        return old.keys() == value.keys() and all(_equal(old[key], value[key]) for key in value)
    return same(old, value)


async def export_cluster(
    connection: ClusterConnection, selection: Selection, folder: Path, *, topics: bool = True
) -> Exported:
    """Write or update the files of the selected resources; a second export of the same state changes no byte.

    Secrets are written as fingerprints that only this installation can compare; a repair never writes a fingerprint.

    :raises PreconditionFailed: a resource could not be read, so its file would be wrong.
    """
    async with AdminClient(connection) as admin:
        observed = await scan_cluster(admin, selection, open_redactor(), topics=topics)
    own = observed.snapshot.cluster
    if observed.unread:
        raise PreconditionFailed(
            f"{own} did not let everything be read, first {min(observed.unread)}: no file was written."
        )
    exported = export(items_of(observed.snapshot, observed.snapshot.known_clusters), folder)
    return replace(exported, cluster=own, calls=observed.calls)
