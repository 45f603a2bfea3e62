"""Remedies of findings: parse the calls that they print, and say which of them a machine may execute.

The inventory is read from the package's own source, so that a new finding without a case fails a test.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.remedy_inventory import groups

import pulsar_fleet
from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.defects.catalogue import DEFECTS
from pulsar_fleet.cluster.defects.model import Condition
from pulsar_fleet.planning.hazards import CALL_RULES
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.preflight.target_limits import TABLE

_ID = re.compile(r"[a-z]+(-[a-z]+)+")
_SEPARATOR = re.compile(r"; (?=[\w.-]+: (?:GET|PUT|POST|DELETE) /admin/v2/)")
_CALL = re.compile(r"([\w.-]+): (GET|PUT|POST|DELETE) /admin/v2(/[^ ?]+)(?:\?(\S+))?(?: (.+))?", re.DOTALL)
_NOT_IDS = frozenset({"fail-back", "non-partitioned", "partitioned-stats"})

CATALOGUES = (
    "preflight/checks",
    "migration/preflight/gates",
    "migration/failback/checks.py",
    "migration/proof/baseline.py",
)
"""Where findings with remedies are defined, relative to the package."""


KNOWN_DEFECTS = frozenset(defect.id for defect in DEFECTS if defect.condition is not Condition.SYMPTOM)
"""The findings that name a known defect of a version."""


def inventory() -> frozenset[str]:
    """The id of every finding that the package can print."""
    root = Path(pulsar_fleet.__file__).parent
    paths = [
        path for name in CATALOGUES for path in ([root / name] if name.endswith(".py") else (root / name).glob("*"))
    ]
    migration = root / "migration"
    others = (migration / "preflight" / "client_compatibility.py", migration / "unread_brokers.py")
    return (
        frozenset(
            node.value
            for path in (*paths, *others)
            if path.suffix == ".py"
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _ID.fullmatch(node.value)
        )
        - _NOT_IDS
        - {"client-follows"}
        | {id_ for limit in TABLE for id_ in limit.ids}
    ) | KNOWN_DEFECTS


def calls(text: str) -> list[tuple[str, Call]]:
    """Each call of a finding, with the name of its cluster."""
    return [_parsed(part) for part in _SEPARATOR.split(text) if part]


def _parsed(text: str) -> tuple[str, Call]:
    matched = _CALL.fullmatch(text)
    assert matched, f"not a call that a person can send: {text!r}"
    cluster, method, path, query, body = matched.groups()
    params = tuple(sorted(tuple(pair.split("=", 1)) for pair in (query or "").split("&") if pair))
    return cluster, Call(method, path, params, json.loads(body) if body else None, has_body=bool(body))


async def send(admin: AdminClient, call: Call) -> None:
    """Send a printed call as it is printed."""
    if call.method == "GET":
        await admin.get(call.path, **dict(call.params))
    else:
        await admin.send(call)


def hazards(finding: Finding) -> Iterator[tuple[Call, str]]:
    """The printed calls that the hazard tables do not let pass without a person's permission, with the reason."""
    for cluster, call in calls(finding.call):
        for rule in CALL_RULES:
            if call.method != "GET" and rule.matches(call, cluster) and rule.risk.hazard.needs_permission:
                yield call, rule.risk.reason


PERMITTED = {
    "flag-left-elsewhere": "or move the namespace with this run",
    "both-sides-flagged": "and on no other cluster",
    "both-flagged": "its topics there accept messages",
    "partitions-differ": "if no consumer on",
}
"""Findings whose call has a hazard → the precondition in their text; each is executed on real clusters."""


def require_harmless(finding: Finding) -> None:
    """A call with a hazard is printed with its precondition only, and a remedy by hand says its own."""
    printed = [call for call, _ in hazards(finding)]
    assert not printed or PERMITTED.get(finding.id, "-") in finding.remedy, f"{finding.text()}\n{printed}"
    (group,) = groups(finding.id)
    phrases = group.says[finding.id]
    assert not phrases or any(phrase in finding.remedy for phrase in phrases), finding.text()
