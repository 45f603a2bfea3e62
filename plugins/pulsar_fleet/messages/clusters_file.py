"""A file with named clusters, for commands: connections as Airflow has them, secrets by reference."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pulsar_fleet.cluster.connection_fields import ConnectionFields
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import JsonObject

CLUSTERS_VARIABLE = "PULSAR_FLEET_CLUSTERS"
_DEFAULT = ".config/pulsar-fleet/clusters.yaml"
_REFERENCE = re.compile(r"^\$\{(\w+)\}$")
_KEYS = ("host", "port", "login", "password", "extra")
_SECRETS = ("password", "extra.token", "extra.oauth2_client_secret")


def clusters_file(environment: Mapping[str, str]) -> Path:
    """The file that `PULSAR_FLEET_CLUSTERS` names, or the one in the user's home; it need not exist."""
    named = environment.get(CLUSTERS_VARIABLE)
    return Path(named) if named else Path(environment.get("HOME") or "/") / _DEFAULT


def read_clusters(environment: Mapping[str, str]) -> dict[str, JsonObject]:
    """Id of each connection of the file → its fields, whose secrets are still references; empty without a file.

    :raises InvalidRequest: the file cannot be read, is no YAML, or holds a secret itself.
    """
    file = clusters_file(environment)
    try:
        text = file.read_text()
    except FileNotFoundError as error:
        if environment.get(CLUSTERS_VARIABLE):
            raise InvalidRequest(f"{CLUSTERS_VARIABLE} names {str(file)!r}, which does not exist.") from error
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"The file of clusters {str(file)!r} cannot be read: {error}.") from error
    clusters = _parsed(text, file)
    for name, fields in clusters.items():
        _refuse_what_is_wrong(name, fields, file)
    return clusters


def fields_of(name: str, clusters: Mapping[str, JsonObject], environment: Mapping[str, str]) -> ConnectionFields:
    """The connection of a cluster of the file, with its secrets from the environment."""

    def secret(text: Any) -> Any:
        match = _REFERENCE.match(text) if isinstance(text, str) else None
        if match is None:
            return text
        if match[1] not in environment:
            raise InvalidRequest(
                f"The cluster {name!r} of the file takes a secret from {match[1]!r}: set that variable."
            )
        return environment[match[1]]

    fields: dict[str, Any] = dict(clusters[name])
    fields["extra"] = {key: secret(value) for key, value in (fields.get("extra") or {}).items()}
    return ConnectionFields(conn_id=name, **{"host": None, **{key: secret(value) for key, value in fields.items()}})


def _parsed(text: str, file: Path) -> dict[str, JsonObject]:
    # Most processes read no file, and the library takes 50 ms to import.
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        document = json.loads(json.dumps(YAML(typ="safe").load(text) or {}))
    except (YAMLError, TypeError, ValueError) as error:
        # The library quotes the line, which may hold a secret.
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise InvalidRequest(f"The file of clusters {str(file)!r} is no YAML{where}.") from error
    if not isinstance(document, dict) or not all(isinstance(fields, dict) for fields in document.values()):
        raise InvalidRequest(
            f"The file of clusters {str(file)!r} is no mapping of names to connections: write `blue:` and below it "
            "`host: http://host:port`."
        )
    return document


def _refuse_what_is_wrong(name: str, fields: JsonObject, file: Path) -> None:
    for key in fields.keys() - set(_KEYS):
        raise InvalidRequest(
            f"The cluster {name!r} in {str(file)!r} has the unknown key {key!r}: known are {', '.join(_KEYS)}."
        )
    extra = fields.get("extra") or {}
    if not isinstance(extra, dict):
        raise InvalidRequest(f"The extra of cluster {name!r} in {str(file)!r} is no mapping of names to values.")
    values = {**fields, **{f"extra.{key}": value for key, value in extra.items()}}
    for key in _SECRETS:
        if values.get(key) and not _REFERENCE.match(str(values[key])):
            raise InvalidRequest(
                f"The cluster {name!r} in {str(file)!r} has its {key} in the file: write the name of an environment "
                "variable there, such as ${BLUE_TOKEN}, or the extra token_file."
            )
