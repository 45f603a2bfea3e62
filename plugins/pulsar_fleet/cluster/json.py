"""Names for the types of JSON values."""

from __future__ import annotations

from typing import Any

Json = Any
"""Any JSON value. `Any`, because brokers of other versions add fields that our types do not have."""

JsonObject = dict[str, Any]
"""A JSON object; keys are strings."""
