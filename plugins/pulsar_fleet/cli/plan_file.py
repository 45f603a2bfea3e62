"""The file of a plan between `plan` and `apply`: changes, clusters, selection."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Self

from pulsar_fleet.cli.terminal import UsageError
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.preflight.findings import Finding

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """Everything that `apply` needs, without secrets.

    :param run: id of the run that made the plan.
    :param source: the cluster to copy, as given on the command line; `target` likewise.
    """

    run: str
    source: str
    target: str
    selection: tuple[str, ...]
    subscriptions: bool
    plan: Plan
    findings: tuple[Finding, ...]

    def to_json(self) -> JsonObject:
        """A JSON object with a digest over its content."""
        content = {
            "schema_version": SCHEMA_VERSION,
            "run": self.run,
            "source": self.source,
            "target": self.target,
            "selection": list(self.selection),
            "subscriptions": self.subscriptions,
            "plan": self.plan.to_json(),
            "findings": [finding.to_json() for finding in self.findings],
        }
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
        if content["schema_version"] != SCHEMA_VERSION:
            raise UsageError(
                f"The plan {name!r} has schema version {content['schema_version']!r}, this release reads "
                f"{SCHEMA_VERSION}: make the plan again."
            )
        if sha256 != _digest(content):
            raise UsageError(f"The plan {name!r} was altered after it was made: make the plan again.")
        return cls(
            run=content["run"],
            source=content["source"],
            target=content["target"],
            selection=tuple(content["selection"]),
            subscriptions=content["subscriptions"],
            plan=Plan.from_json(content["plan"]),
            findings=tuple(Finding.from_json(finding) for finding in content["findings"]),
        )


def _digest(content: JsonObject) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
