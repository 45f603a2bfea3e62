"""Paths that would be read as other paths are never sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_fleet.cluster.admin.call import require_exact_path
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.names import NamespaceName, TopicName

TOPIC = TopicName(NamespaceName("acme", "orders"), "events")


@pytest.mark.parametrize("name", [".", "..", ""])
def test_a_subscription_whose_path_is_the_path_of_its_topic_is_refused(name: str) -> None:
    for path in (TOPIC.subscription_path(name), f"{TOPIC.subscription_path(name)}/properties"):
        with pytest.raises(InvalidRequest, match="Nothing was sent"):
            require_exact_path(f"/admin/v2{path}" if name else f"/admin/v2{path}/x")


@pytest.mark.parametrize("segment", ["..", "%2E%2E", "%2e.", ".", "%2E", ""])
def test_every_form_of_a_step_in_a_path_is_refused(segment: str) -> None:
    with pytest.raises(InvalidRequest, match="would be read as another path"):
        require_exact_path(f"/admin/v2/persistent/acme/orders/{segment}/stats")


@pytest.mark.parametrize("segment", ["%252E%252E", "%252E"])
def test_a_step_encoded_twice_is_refused_where_the_broker_decodes_twice(segment: str) -> None:
    with pytest.raises(InvalidRequest, match="would be read as another path"):
        require_exact_path(f"{TOPIC.path}/subscription/{segment}/properties")


@given(
    st.one_of(st.text(min_size=1), st.sampled_from(["%2E%2E", "%2E", "..."])).filter(
        lambda name: name not in (".", "..")
    )
)
def test_every_other_name_passes_in_every_path(name: str) -> None:
    topic = TopicName(NamespaceName("acme", "orders"), name)
    for path in (f"/{topic.path}", topic.schema_path, TOPIC.subscription_path(name), "/metrics/"):
        require_exact_path(f"/admin/v2{path}")
