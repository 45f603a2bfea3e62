"""What the Spark jobs of a verification have in common: two URIs, a log, and an exit status."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable

from pulsar_fleet.cluster.errors import FleetError


def run_job(arguments: list[str], what: str, compare: Callable[[str, str], None]) -> None:
    """Call `compare` with the URIs of request and result; a failure of its own ends the job with status 1.

    :param what: is compared, such as "messages".
    """
    parser = argparse.ArgumentParser(description=f"Compare the {what} of two Pulsar clusters.")
    parser.add_argument("--request", required=True, help="URI of the request document")
    parser.add_argument("--result", required=True, help="URI under which the result is written")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        compare(given.request, given.result)
    except (FleetError, OSError) as error:
        raise SystemExit(f"The comparison was not carried out: {error}") from error
