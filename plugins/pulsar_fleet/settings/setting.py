"""A setting of a procedure, from which its field in the form and its option on the command line are made (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.text import did_you_mean


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    :param default: its value where nobody gives one.
    :param description: what it does, for both; of a list it describes the list.
    :param schema: its type and limits, as JSON schema.
    :param option: its option on the command line where that has another name.
    :param is_example: the default is an example: the form proposes it, and neither the form nor the command line has it
        as a value.
    :param only_in_form: it is Airflow's; the command line does not have it.
    :param is_argument: the command line takes it by its place.
    :param unless: the setting with which this list may be empty.
    :param group: of the options in the help of a command, where they are many.
    """

    default: Json
    title: str
    description: str
    schema: Mapping[str, Any]
    option: str = ""
    is_example: bool = False
    only_in_form: bool = False
    unless: str = ""
    is_argument: bool = False
    group: str = ""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The types that its value may have, such as ("null", "integer")."""
        types = self.schema["type"]
        return (types,) if isinstance(types, str) else tuple(types)

    @property
    def is_list(self) -> bool:
        """Whether it has several values."""
        return "array" in self.kinds

    @property
    def unset(self) -> Json:
        """The default of the form."""
        if not self.is_example:
            return self.default
        return [] if self.is_list else None

    @property
    def empty(self) -> Json:
        """The default of the command line."""
        return [] if self.is_list else self.unset

    def optional(self) -> Setting:
        """The same for runs on a schedule, which have no form: Airflow wants a valid default; an example is none."""
        if not self.is_example:
            return self
        schema = {key: limit for key, limit in self.schema.items() if key not in ("minItems", "minLength")}
        if not self.is_list:
            schema["type"] = ["null", *self.kinds]
        return replace(self, default=self.unset, schema=schema, is_example=False)

    def require_in_range(self, name: str, value: Json) -> None:
        """Refuse a number outside of the limits by `InvalidRequest`."""
        low, high = self.schema.get("minimum"), self.schema.get("maximum")
        if isinstance(value, bool) or not isinstance(value, int | float):
            return
        above, below = self.schema.get("exclusiveMinimum"), self.schema.get("exclusiveMaximum")
        open_limits = [f"{word} {limit}" for word, limit in (("above", above), ("below", below)) if limit is not None]
        if (above is not None and value <= above) or (below is not None and value >= below):
            raise InvalidRequest(f"{name!r} is {value}: set it {' and '.join(open_limits)}.")
        limits = [f"at {word} {limit}" for word, limit in (("least", low), ("most", high)) if limit is not None]
        if (low is not None and value < low) or (high is not None and value > high):
            raise InvalidRequest(f"{name!r} is {value}: set it to {' and '.join(limits)}.")


Settings = Mapping[str, Setting]


def setting(
    default: Json,
    *,
    title: str,
    description: str,
    option: str = "",
    is_example: bool = False,
    only_in_form: bool = False,
    unless: str = "",
    is_argument: bool = False,
    group: str = "",
    **schema: Any,
) -> Setting:
    """A setting; `schema` is its JSON schema, such as `type="integer", minimum=1`."""
    return Setting(default, title, description, schema, option, is_example, only_in_form, unless, is_argument, group)


def with_defaults(settings: Settings, defaults: Mapping[str, Json]) -> dict[str, Setting]:
    """The same settings with other defaults."""
    return {
        name: replace(setting, default=defaults[name], is_example=False) if name in defaults else setting
        for name, setting in settings.items()
    }


def refuse_unknown_settings(conf: JsonObject | None, settings: Iterable[str]) -> None:
    """Refuse a key that no setting has, and propose the closest one.

    :param settings: the names of all settings.
    """
    names = sorted(settings)
    for key in conf or {}:
        if key not in names:
            hint = did_you_mean(key, names, f"the settings are {', '.join(names)}.")
            raise InvalidRequest(f"Unknown setting {key!r} in the run's configuration; {hint}")
