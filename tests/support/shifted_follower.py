"""The command line on a host whose clock is wrong: `python -m tests.support.shifted_follower SECONDS ARGUMENTS`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

if __name__ == "__main__":
    right, ahead = time.time, float(sys.argv[1])
    time.time = lambda: right() + ahead
    sys.argv = ["pulsar-fleet", *sys.argv[2:]]
    sys.path.insert(0, str(Path(__file__).parents[2] / "plugins"))

    from pulsar_fleet.cli import app

    app()
