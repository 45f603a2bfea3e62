"""The list of what a cluster holds, against the read routes of Pulsar's own classes."""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import zip_longest

import pytest
from tests.support.pulsar_classes import VERSIONS, read_routes

from pulsar_fleet.cluster.policies.namespace_catalogue import CATALOGUE
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_CATALOGUE
from pulsar_fleet.snapshot.coverage import CONTENTS

pytestmark = pytest.mark.versions
POLICIES = {
    *(f"namespaces/*/*/{policy.path}" for policy in CATALOGUE if policy.path),
    *(f"persistent/*/*/*/{policy.path}" for policy in TOPIC_CATALOGUE if policy.path),
}


@pytest.fixture(scope="module", params=VERSIONS)
def routes(request: pytest.FixtureRequest) -> set[str]:
    return {route.removeprefix("non-") for route in read_routes(str(request.param))}


def shows(pattern: str, route: str) -> bool:
    if pattern.endswith("/**"):
        root = pattern.removesuffix("/**")
        return route == root or shows(root, "/".join(route.split("/")[: root.count("/") + 1]))
    parts = zip_longest(pattern.split("/"), route.split("/"), fillvalue="")
    return all(fnmatchcase(part, asked) for asked, part in parts)


def test_all_that_the_admin_api_shows_is_in_the_list(routes: set[str]) -> None:
    assert len(routes) > 150
    patterns = [pattern for content in CONTENTS for pattern in content.routes]
    shown = {route for route in routes if any(shows(pattern, route) for pattern in patterns)}
    assert routes - shown - POLICIES == set()
    assert "brokers/health" in shown


def test_a_route_that_no_row_has_is_noticed() -> None:
    patterns = [pattern for content in CONTENTS for pattern in content.routes]
    assert not any(shows(pattern, "unheard-of/*/*") for pattern in patterns)
    assert shows("functions/**", "functions/*/*/*/status")
    assert not shows("namespaces/*", "namespaces/*/*")
