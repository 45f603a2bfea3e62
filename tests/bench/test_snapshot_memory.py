"""Memory and time of storing, loading and comparing snapshots of 100,000 topics; each step in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.bench.synthetic import NAMESPACES, TOPICS

REPOSITORY = Path(__file__).parents[2]
STEPS = ("nothing", "write", "load", "batches", "floor", "compare")


def test_memory(tmp_path: Path) -> None:
    print(f"\n{NAMESPACES:,} namespaces × {TOPICS} topics, two subscriptions and a schema each; both sides are written")
    for step in STEPS:
        done = subprocess.run(
            [sys.executable, "-m", "tests.bench.synthetic", step, str(tmp_path)],
            capture_output=True,
            text=True,
            cwd=REPOSITORY,
            env=dict(os.environ),
            check=True,
        )
        seconds, megabytes = done.stdout.split()
        print(f"{step:10} {float(seconds):7.2f} s  {int(megabytes):5,} MB at most")
    stored = sum(path.stat().st_size for path in tmp_path.rglob("*.parquet"))
    print(f"on disk    {stored / 1e6:.1f} MB for both sides")
