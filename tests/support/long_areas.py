"""Which areas of the long tests a change concerns, and when each was last green.

Commands: `changed 1` or `changed REF`, `commit`, `passed "AREA or AREA" SECONDS COMMIT`, `check`; the Makefile calls
them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import grimp
from tests.support.kinds import AREA_OF_FOLDER, AREAS

REPOSITORY = Path(__file__).parents[2]
TABLE = REPOSITORY / "tests" / "long.toml"


def _procedures(*names: str) -> tuple[str, ...]:
    return tuple(f"pulsar_fleet.procedures.{name}" for name in names)


ROOMS: Mapping[str, tuple[str, ...]] = {
    "migration": ("pulsar_fleet.migration", *_procedures("migration", "failback", "abort")),
    "policy_sync": ("pulsar_fleet.policy_sync", *_procedures("reconciliation", "metadata")),
    "verification": ("pulsar_fleet.verification", "pulsar_fleet.messages", *_procedures("verification", "proofs")),
    "onboarding": ("pulsar_fleet.onboarding", "pulsar_fleet.snapshot", *_procedures("onboarding")),
    "replication": (
        "pulsar_fleet.replication",
        "pulsar_fleet.links",
        *_procedures("replication", "replication_watch", "failover", "client_moves"),
    ),
    "read_only": ("pulsar_fleet.read_only", *_procedures("read_only")),
    "sandbox": ("pulsar_sandbox",),
    "fleets": ("pulsar_fleet.migration", "pulsar_fleet.planning", "pulsar_fleet.policy_sync", "pulsar_fleet.cluster"),
    "pairs": tuple(f"pulsar_fleet.{name}" for name in ("migration", "links", "read_only", "planning", "policy_sync")),
    "airflow": ("pulsar_fleet.airflow",),
}
"""Area → the packages and modules that its tests are for; what these import concerns it too."""
_ITSELF_ONLY = frozenset({"fleets", "pairs", "airflow"})
"""Areas that would be concerned by everything: only by changes in their rooms."""
_OTHERS = {"dags": ("airflow",), "spark_jobs": ("verification", "onboarding")}


_AREA_MARK = re.compile(rf"\bmark\.({'|'.join(AREAS)})\b")


def concerned(paths: Iterable[str]) -> dict[str, list[str]]:
    """Area → the changed files that concern it: by the imports of its rooms, and a test by its folder and marks."""
    of_area = _modules_of_areas()
    found: dict[str, list[str]] = {}
    for path in sorted(paths):
        parts = PurePosixPath(path).parts
        areas = _areas_of_module(path, of_area) if parts[0] == "plugins" else set()
        if parts[0] == "tests":
            areas = _areas_of_test(path)
        for area in areas | {*_OTHERS.get(parts[0], ())}:
            found.setdefault(area, []).append(path)
    return {area: found[area] for area in AREAS if area in found}


def _areas_of_test(path: str) -> set[str]:
    """By its folder; those of a file with long tests also by the marks in it."""
    parts, file = PurePosixPath(path).parts, REPOSITORY / path
    areas = {AREA_OF_FOLDER[parts[2]]} if parts[1] == "contract" and parts[2] in AREA_OF_FOLDER else set()
    text = file.read_text() if file.suffix == ".py" and file.is_file() else ""
    return areas | ({*_AREA_MARK.findall(text)} if "mark.long" in text else set())


@cache
def _modules_of_areas() -> Mapping[str, set[str]]:
    graph = grimp.build_graph("pulsar_fleet", "pulsar_sandbox", exclude_type_checking_imports=True, cache_dir=None)
    return {area: _modules(graph, area) for area in AREAS}


def _modules(graph: Any, area: str) -> set[str]:
    modules = set[str]()
    for room in ROOMS[area]:
        modules |= {room} | graph.find_descendants(room)
        if area not in _ITSELF_ONLY:
            modules |= graph.find_upstream_modules(room, as_package=True)
    return modules


def _areas_of_module(path: str, of_area: Mapping[str, set[str]]) -> set[str]:
    """Those of a module below `plugins/`; of a file that is none, or none any more, those of its nearest folder."""
    named = PurePosixPath(path).with_suffix("").parts[1:]
    module = ".".join(named[:-1] if named[-1] == "__init__" else named)
    areas = {area for area, modules in of_area.items() if module in modules}
    while not areas and module:
        module = module.rpartition(".")[0]
        areas = {
            area for area, modules in of_area.items() if any(f"{one}.".startswith(f"{module}.") for one in modules)
        }
    return areas


def read_table() -> dict[str, dict[str, Any]]:
    """Area → `commit`, `date` and, of a run of this area alone, `seconds`."""
    return tomllib.loads(TABLE.read_text()) if TABLE.exists() else {}


def record(areas: Sequence[str], seconds: int, commit: str, now: datetime) -> None:
    """Write that the long tests of these areas have passed; the others stay."""
    alone = {"seconds": seconds} if len(areas) == 1 else {}
    table = {**read_table(), **{area: {"commit": commit, "date": f"{now:%Y-%m-%d}", **alone} for area in areas}}
    lines = ["# When the long tests of an area were last green: written by `make test-long`."]
    for area in filter(table.__contains__, AREAS):
        values = (
            f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}"
            for name, value in table[area].items()
        )
        lines += ["", f"[{area}]", *values]
    TABLE.write_text("\n".join(lines) + "\n")


def outdated() -> dict[str, list[str]]:
    """Area → what has changed since it was last green; of one that never was, or whose commit is gone, nothing."""
    table, found = read_table(), dict[str, list[str]]()
    for area in AREAS:
        commit = table.get(area, {}).get("commit")
        if commit is None or (changed := _changed(commit)) is None:
            found[area] = []
        elif paths := concerned(changed).get(area):
            found[area] = paths
    return found


def _changed(base: str) -> list[str] | None:
    """The files that differ from a commit, also those without a commit; None if there is no such commit."""
    diff = _git("diff", "--name-only", base, "--")
    return (
        None if diff is None else [*diff.split(), *(_git("ls-files", "--others", "--exclude-standard") or "").split()]
    )


def clean_commit() -> str:
    """The commit that the tests of this folder are of; empty if there are changes without one, or no Git."""
    changes = _git("status", "--porcelain", "--", ".", f":!{TABLE.relative_to(REPOSITORY)}")
    return (_git("rev-parse", "--short=12", "HEAD") or "") if changes == "" else ""


def _git(*words: str) -> str | None:
    """What Git prints; None if it fails or is missing."""
    try:
        done = subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _lines(areas: Mapping[str, Sequence[str]]) -> list[str]:
    return [
        f"{area:<14}{', '.join(paths[:3])}{f' and {len(paths) - 3} more' if len(paths) > 3 else ''}"
        if paths
        else f"{area:<14}was never green on a commit of this history"
        for area, paths in areas.items()
    ]


def main(command: str, *words: str) -> int:
    """Print what the command says; only `changed` with a reference that does not exist fails."""
    if command == "changed":
        (base,) = words
        if base == "1":
            areas = outdated()
        elif (changed := _changed(base)) is None:
            sys.stderr.write(f"There is no commit {base!r}: write CHANGED=1, or CHANGED=main~3.\n")
            return 2
        else:
            areas = concerned(changed)
        sys.stderr.write("\n".join(_lines(areas) or ["No area has changed."]) + "\n")
        sys.stdout.write(" or ".join(areas))
    elif command == "commit":
        sys.stdout.write(clean_commit())
    elif command == "passed":
        areas_passed, seconds = (words[0].split(" or ") if words[0] else list(AREAS)), int(words[1])
        if not {*areas_passed} <= {*AREAS} or os.environ.get("PULSAR_FLEET_PAIRS"):
            # Not whole areas.
            return 0
        began, ended = words[2] if words[2:] else "", clean_commit()
        if not began or began != ended:
            sys.stderr.write("Not recorded in tests/long.toml: it was not one commit from the begin to the end.\n")
            return 0
        record(areas_passed, seconds, began, datetime.now(UTC))
    elif areas := outdated():
        sys.stderr.write(
            "\n".join(["Changed since their long tests were green (make test-long CHANGED=1):", *_lines(areas)]) + "\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
