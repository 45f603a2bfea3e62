"""The file of a plan between `plan` and `apply`: changes, clusters, selection."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Self

from pulsar_fleet.cli.terminal import UsageError
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.preflight.findings import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile(Document):
    """Everything that `apply` needs, without secrets.

    :param run: id of the run that made the plan.
    :param source: the cluster to copy, as given on the command line; `target` likewise.
    """

    SCHEMA_VERSION = 1

    run: str
    source: str
    target: str
    selection: tuple[str, ...]
    subscriptions: bool
    plan: Plan
    findings: tuple[Finding, ...]

    def to_json(self) -> JsonObject:
        """A JSON object with a digest over its content."""
        content = Document.to_json(self)
        return {**content, "sha256": _digest(content)}

    @classmethod
    def from_text(cls, text: str, name: str) -> Self:
        """Read the result of `to_json`; an invalid or altered document raises `UsageError`.

        :param name: name of the file, for messages.
        """
        try:
            document = json.loads(text)
            content = {key: document[key] for key in (*cls.__slots__, "schema_version")}
            sha256 = document["sha256"]
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(
                f"{name!r} is not a plan: make one with: pulsar-fleet plan SOURCE TARGET --out {name}"
            ) from error
        if content["schema_version"] != cls.SCHEMA_VERSION:
            raise UsageError(
                f"The plan {name!r} has schema version {content['schema_version']!r}, this release reads "
                f"{cls.SCHEMA_VERSION}: make the plan again."
            )
        if sha256 != _digest(content):
            raise UsageError(f"The plan {name!r} was altered after it was made: make the plan again.")
        return cls.from_json(content)


def _digest(content: JsonObject) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
