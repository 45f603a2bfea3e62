"""Generate docs/messages.md: every message with which a command or a task stops, read from the code that raises it.

`python -m docs.tools.messages` writes it; a test compares the page.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from docs.tools.generated_parts import with_parts

PAGE = "messages.md"
ACTS = {
    "Unavailable": "nobody: it was retried, a later call may succeed",
    "InvalidRequest": "you: correct the request",
    "UsageError": "you: correct the command",
    "PermissionDenied": "correct credentials or rights",
    "Unauthenticated": "correct the credentials",
    "NotAllowed": "grant the right",
    "NotFound": "you: what it names does not exist",
    "Conflict": "look again: the state has changed",
    "PreconditionFailed": "you: do what it says first",
    "PlanOutdated": "start a new run",
    "ExecutedElsewhere": "wait for the other process",
}
"""Class of an error → who acts, or what to do; see `cluster/errors.py`."""
ROOMS = {
    "migration": ("Migration, failback, abort", "migration_failures.md"),
    "replication": ("Replication, failover, moves of clients", "replicate_namespaces.md"),
    "links": ("Links between clusters", "replicate_namespaces.md"),
    "clients": ("Connection documents", "clients.md"),
    "onboarding": ("Onboarding", "onboard_cluster.md"),
    "planning": ("Plans and what they change", "onboard_cluster.md"),
    "preflight": ("Checks before a change", "migration_gates.md"),
    "snapshot": ("Snapshots", "onboard_cluster.md"),
    "policy_sync": ("Reconciliation and metadata", "reconcile_policies.md"),
    "read_only": ("Read-only serving", "serve_read_only.md"),
    "verification": ("Verification", "verify_clusters.md"),
    "messages": ("Reading and writing messages", "provider.md"),
    "procedures": ("All procedures", "capacity.md"),
    "settings": ("Settings of a run", "capacity.md"),
    "cluster": ("Clusters and connections", "provider.md"),
    "ledger": ("Ledger and artefacts", "evidence.md"),
    "evidence": ("Evidence", "evidence.md"),
    "report": ("Reports", "evidence.md"),
    "fleet": ("The pages", "fleet_page.md"),
    "airflow": ("Airflow", "provider.md"),
    "cli": ("The terminal", "onboard_cluster.md#from-a-terminal"),
}
"""Package → the heading of its messages, and the page that says more."""
_LEAST_WORDS = 3


def messages(package: Path) -> Iterator[tuple[str, str, str]]:
    """Room, class and text of each error that the code makes of a text; `…` is a value."""
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ACTS and node.args:
                text = _text(node.args[0])
                if len([word for word in text.split() if any(map(str.isalpha, word))]) >= _LEAST_WORDS:
                    yield path.relative_to(package).parts[0].removesuffix(".py"), node.func.id, text


def with_messages(page: str, package: Path) -> str:
    """The page with its tables up to date."""
    found: dict[str, set[tuple[str, str]]] = {}
    for room, kind, text in messages(package):
        found.setdefault(room, set()).add((text, kind))
    if unknown := found.keys() - ROOMS:
        raise ValueError(f"Name a page for the messages of {', '.join(sorted(unknown))}.")
    parts = (_section(room, found[room]) for room in ROOMS if room in found)
    return with_parts(page, {"messages": "\n\n".join(parts)})


def _section(room: str, found: set[tuple[str, str]]) -> str:
    title, page = ROOMS[room]
    rows = [f"| {text.replace('|', chr(92) + '|')} | {ACTS[kind]} |" for text, kind in sorted(found)]
    head = [f"## {title}", "", f"More: [{page}]({page})", "", "| message | who acts |", "| --- | --- |"]
    return "\n".join([*head, *rows])


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text.replace("\n", " ")
        case ast.JoinedStr(values=values):
            return "".join(map(_text, values))
        case ast.BinOp(left=left, right=right):
            return _text(left) + _text(right)
    return "…"


if __name__ == "__main__":
    repository = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    written = repository / "docs" / PAGE
    written.write_text(with_messages(written.read_text(), repository / "plugins" / "pulsar_fleet"))
