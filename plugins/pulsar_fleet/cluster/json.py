"""What travels over REST and into files, under one name."""

from __future__ import annotations

from typing import Any

Json = Any
"""A value that JSON can hold. `Any`, because brokers of other versions add fields that no type of ours knows."""

JsonObject = dict[str, Any]
"""A JSON object; keys are strings."""
