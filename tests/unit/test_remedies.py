"""Every finding of the package has a test that does what its remedy says, and one of the nearest wrong state."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from tests.support.remedies import PERMITTED, calls, inventory
from tests.support.remedy_inventory import INVENTORY, Group, Kind

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.migration.preflight.gates import compatibility
from pulsar_fleet.preflight import waivers
from pulsar_fleet.procedures.failback import FAILBACK
from pulsar_fleet.procedures.migration import MIGRATION
from pulsar_fleet.replication.setup import checks

TESTS = Path(__file__).parents[1]
REPOSITORY = TESTS.parent
_STATES = re.compile(r"\b(verify_\w+|write_\w+|fail_back_namespaces|migrate_namespaces)\b")
_SETTINGS = re.compile(r"(?:set|correct|out of|add it to) '(\w+)'(?: \((--[a-z-]+))?")
"""The setting of a form, and its option in a terminal."""
_STRATEGIES = re.compile(r"replicate_then_switch|strategy (\w+)")


def test_every_finding_has_one_case() -> None:
    named = [id_ for group in INVENTORY for id_ in group.says]
    assert sorted(named) == sorted(inventory())
    assert set(PERMITTED) <= set(named)


@pytest.mark.parametrize("group", INVENTORY, ids=lambda group: f"{group.kind.name} {next(iter(group.says))}")
def test_the_tests_of_a_finding_exist_and_name_it(group: Group) -> None:
    for reference in (group.done, group.nearest):
        file, _, name = reference.partition("::")
        text = (TESTS / file).read_text()
        functions = {
            node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert name in functions, reference
        if "NEAREST" in text and "nearest" in name:
            assert {id_ for id_ in group.says if f'"{id_}"' not in text} == set()


def test_what_is_a_call_is_executed_on_real_clusters() -> None:
    for group in INVENTORY:
        assert group.done.startswith("contract/") == (group.kind in (Kind.CALL, Kind.BROKER))


@pytest.mark.parametrize(
    "table",
    [
        checks.REMEDIES,
        checks.NEVER,
        checks.OF_COPIES_ONLY,
        waivers.NOT_WAIVABLE,
        compatibility.RAISED_TO_BLOCKERS,
        compatibility.REPORTED_ELSEWHERE,
        compatibility.LEFT_GREEN,
    ],
)
def test_a_table_of_findings_has_only_findings_that_exist(table: Iterable[str]) -> None:
    assert {*table} <= inventory()


def _remedies() -> str:
    """The texts of the modules that print findings."""
    root = REPOSITORY / "plugins" / "pulsar_fleet"
    paths = [*root.glob("preflight/checks/*.py"), *root.glob("migration/preflight/gates/*.py")]
    paths += [root / "migration/failback/checks.py", root / "migration/proof/baseline.py"]
    return "\n".join(text for path in paths for text in _texts(ast.parse(path.read_text())))


def _texts(tree: ast.AST) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant):
            yield str(node.value)
        else:
            yield from _texts(node)


def test_a_task_a_setting_or_a_dag_that_a_remedy_names_exists() -> None:
    names = {path.stem for path in (REPOSITORY / "dags").glob("*.py")} | {*MIGRATION.steps(), *FAILBACK.steps()}
    texts = re.findall(r"(?:clear|run|says|shows|leads|verif|out with|first)[^\"\n]*", _remedies())
    named = {name for text in texts for name in _STATES.findall(text)}
    assert {"verify_copy", "verify_clusters", "verify_messages", "write_report", "fail_back_namespaces"} <= named
    assert named - names == set()
    named_settings = set(_SETTINGS.findall(_remedies()))
    settings = {name for name, _ in named_settings}
    assert {option for _, option in named_settings} == {f"--{name.replace('_', '-')}" for name in settings}
    forms = "\n".join(path.read_text() for path in (REPOSITORY / "plugins/pulsar_fleet/settings").glob("*.py"))
    assert settings == {"allow_removal", "namespaces"}
    assert all(f'"{name}"' in forms or f"{name}=" in forms for name in settings)


@pytest.mark.parametrize(
    ("text", "call"),
    [
        (
            "blue: POST /admin/v2/namespaces/a/b/migration false",
            Call("POST", "/namespaces/a/b/migration", (), False, True),
        ),
        (
            "blue: POST /admin/v2/clusters/blue/migrate?migrated=false",
            Call("POST", "/clusters/blue/migrate", (("migrated", "false"),)),
        ),
    ],
)
def test_a_printed_call_is_parsed_as_a_person_reads_it(text: str, call: Call) -> None:
    assert calls(f"{text}; green: GET /admin/v2/clusters") == [("blue", call), ("green", Call("GET", "/clusters"))]
