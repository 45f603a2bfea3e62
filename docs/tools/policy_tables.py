"""Generate the tables of docs/fidelity.md from the catalogues.

`python -m docs.tools.policy_tables` writes them; one test compares the page, and another copies on real clusters every
policy that the page calls copied.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from pulsar_fleet.cluster.policies.model import Form, Kind, Policy, Scope, TopicPolicy, Unset
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD, CATALOGUE, is_supported
from pulsar_fleet.cluster.policies.refusals import REFUSALS, Level
from pulsar_fleet.cluster.policies.topic_catalogue import TOPIC_CATALOGUE
from pulsar_fleet.cluster.versions import FACTS, RELEASES, Redirect, Role
from pulsar_fleet.preflight.target_limits import TABLE
from pulsar_fleet.snapshot.coverage import CONTENTS

PAGE = "fidelity.md"
VERSION = "4.2.4"
# Counted manually on the same broker: tool, direction, namespace policies of 50, topic policies of 33.
PEERS = (
    ("pulsarctl (0869b80c, 2026-05-14)", "reads whole", 28, 15),
    ("", "writes whole", 27, 15),
    ("", "reads and writes whole", 27, 15),
    ("terraform-provider-pulsar v0.12.0", "imports whole", 3, 10),
    ("", "writes whole", 19, 16),
    ("", "reads and writes whole", 3, 10),
)
PEER_ROWS = (50, 33)

Row = Policy | TopicPolicy


def fidelity_page(page: str) -> str:
    """The page with every table between its two markers regenerated."""
    for name, table in _tables().items():
        before, begin, rest = page.partition(f"<!-- {name}: made by make docs -->")
        _, end, after = rest.partition(f"<!-- end of {name} -->")
        page = f"{before}{begin}\n{table}\n{end}{after}"
    return page


def namespace_counts() -> tuple[int, int]:
    """The number of namespace policies of `VERSION` that are copied to a new, and to an existing namespace."""
    policies = [policy for policy in CATALOGUE if policy.comparable and is_supported(policy.since, VERSION)]
    later = [policy for policy in policies if policy.kind is not Kind.AT_CREATION]
    return _sections(policies), _sections(later)


def topic_counts(scope: Scope) -> tuple[int, int]:
    """The number of topic policies of `VERSION` in this scope, and of those that are copied."""
    policies = [policy for policy in TOPIC_CATALOGUE if policy.path and is_supported(policy.since, VERSION)]
    if scope is Scope.GLOBAL:
        policies = [policy for policy in policies if not policy.local_only]
    return _sections(policies), _sections(policy for policy in policies if policy.is_copied(scope))


def _tables() -> Mapping[str, str]:
    return {
        "contents": _contents(),
        "versions": _versions(),
        "patches": _patches(),
        "counts": _counts(),
        "namespace policies": _table(
            ("policy", "set by", "unset by", "kind", "while not set", "order, hazard, secrets"), CATALOGUE
        ),
        "topic policies": _table(
            ("policy", "set by", "unset by", "form", "while not set", "order, hazard, secrets"), TOPIC_CATALOGUE
        ),
        "refused values": _refusals(),
        "target limits": _limits(),
    }


def _contents() -> str:
    lines = ["| a cluster's | | how | named by |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {content.name} | {content.treatment.value} | {content.how} | {_names(content.findings)} |"
        for content in CONTENTS
    ]
    return "\n".join(lines)


def _refusals() -> str:
    head = ("policy", "of", "the broker says", "refused at the creation of a namespace", "the same effect has")
    topics = {row.namespace_field: row.field for row in TOPIC_CATALOGUE if row.namespace_field}
    lines = []
    for rule in REFUSALS:
        topic = topics.get(rule.field, "" if rule.field in BY_FIELD else rule.field)
        of = [Level.NAMESPACE.value] if Level.NAMESPACE in rule.levels else []
        if Level.TOPIC in rule.levels and topic:
            of.append(f"topic (`{topic}`)" + (f" since {rule.topics_since}" if rule.topics_since else ""))
        created = "yes" if rule.created else ""
        lines.append(_line((f"`{rule.field}`", ", ".join(of), rule.says, created, rule.offer or "no other value")))
    return "\n".join([_line(head), _line(["---"] * len(head)), *lines])


def _limits() -> str:
    head = ("the target refuses", "by", "since", "what becomes of it", "finding of a plan", "plans", "diagnosis")
    rows = [
        _line(
            (
                limit.refuses,
                limit.read,
                limit.since,
                limit.effect,
                _names(limit.ids),
                "of copies and of replication" if limit.replicated else "of copies",
                f"`{limit.cause}`" if limit.cause else "",
            )
        )
        for limit in TABLE
    ]
    return "\n".join([_line(head), _line(["---"] * len(head)), *rows])


def _versions() -> str:
    rows = ["| Pulsar | measured | roles | redirects | what it does differently |", "| --- | --- | --- | --- | --- |"]
    rows += [
        f"| {release.line} | {release.measured} | {', '.join(role for role in Role if role in release.roles)} "
        f"| {', '.join(f'a {unit}' for unit in Redirect if unit in release.redirects)} "
        f"| {' '.join(release.differences)} |"
        for release in RELEASES
    ]
    return "\n".join(rows)


def _patches() -> str:
    rows = ["| from | brokers | before | known by |", "| --- | --- | --- | --- |"]
    rows += [
        f"| {', '.join(fact.since)} | {fact.says} | {fact.before} | {fact.word}: {fact.source} |" for fact in FACTS
    ]
    return "\n".join(rows)


def _counts() -> str:
    new, existing = namespace_counts()
    local, shared = topic_counts(Scope.LOCAL), topic_counts(Scope.GLOBAL)
    rows = [
        f"| **Pulsar Fleet** | to a new namespace | **{new} of {new}** | **{local[1]} of {local[0]}** "
        f"| **{shared[1]} of {shared[0]}** |",
        f"| | to an existing namespace | {existing} of {new} | {local[1]} of {local[0]} | {shared[1]} of {shared[0]} |",
    ]
    for tool, does, namespaces, topics in PEERS:
        of = [f"{count} of {total}" for count, total in zip((namespaces, topics), PEER_ROWS, strict=True)]
        rows.append(f"| {tool} | {does} | {of[0]} | {of[1]} | 0 of {shared[0]} |")
    head = ("tool", "", "namespace policies", "topic policies, local", "topic policies, global")
    return "\n".join([_line(head), _line(["---"] * len(head)), *rows])


def _table(head: Iterable[str], rows: Iterable[Row]) -> str:
    columns = list(head)
    lines = [
        _line((f"`{row.field}`", _setter(row), _unsetter(row), _kind(row), _default(row), _notes(row))) for row in rows
    ]
    return "\n".join([_line(columns), _line(["---"] * len(columns)), *lines])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _sections(rows: Iterable[Row]) -> int:
    """The number of policies; each section that is set separately counts as one."""
    return sum(len(row.sections) or 1 for row in rows)


def _setter(row: Row) -> str:
    if not row.path or _elsewhere(row):
        return ""
    query = f"?{row.in_query}=" if isinstance(row, Policy) and row.in_query else ""
    text = f"`{row.method} {row.path}{query}`"
    return f"{text}, one call each: {_names(row.sections)}" if row.sections else text


def _unsetter(row: Row) -> str:
    if not row.path or _elsewhere(row):
        return ""
    if isinstance(row, TopicPolicy):
        return f"`DELETE {row.path}`" if row.can_unset else "cannot be unset; `false` stands for that"
    if row.kind in (Kind.GRANTS, Kind.PROPERTIES):
        return "`DELETE`, one call each"
    if row.unset is Unset.DEFAULT:
        return f"`{row.method}` of `{row.default}`"
    return f"`DELETE {row.unset_path or row.path}`" if row.unset is Unset.DELETE else row.unset.value


def _kind(row: Row) -> str:
    kind = row.kind.value if isinstance(row, Policy) else row.form.value
    since = [f"since {row.since}"] if row.since else []
    if isinstance(row, Policy):
        return ", ".join([kind, *(["kept by each cluster for itself"] if row.own else []), *since])
    return ", ".join([kind, *(["local only"] if row.local_only else []), *since])


def _default(row: Row) -> str:
    if isinstance(row, TopicPolicy) and row.namespace_field:
        return f"the namespace's `{row.namespace_field}`"
    if isinstance(row.broker_default, str):
        return f"`{row.broker_default}`" if row.broker_default else ""
    return _names(key for _, key in row.broker_default)


def _notes(row: Row) -> str:
    switches = row.needs if isinstance(row, Policy) else ()
    notes = [
        f"after {_names(row.after)}" if row.after else "",
        "can discard messages or topics" if row.loses_data else "",
        f"secret: {_names(row.secrets)}" if row.secrets else "",
        f"only with {_names(switches)}" if switches else "",
    ]
    return "; ".join(note for note in notes if note)


def _elsewhere(row: Row) -> bool:
    return isinstance(row, TopicPolicy) and row.form is Form.NOT_COPIED


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "docs") / PAGE
    target.write_text(fidelity_page(target.read_text()))
