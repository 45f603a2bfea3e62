"""The options of a command, made of the settings of its procedure, as the fields of the form are."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from typing import Annotated, Any, Literal

import typer

from pulsar_fleet.cli.options import AsJson, json_document
from pulsar_fleet.cli.terminal import Terminal, usage_errors
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.settings.setting import Setting, Settings

Command = Callable[..., None]
_TYPES: Mapping[str, Any] = {"string": str, "integer": int, "number": float}


def with_settings(
    settings: Settings,
    *,
    arguments: Mapping[str, str],
    required: bool = True,
    without: Collection[str] = (),
    defaults: Mapping[str, Json] | None = None,
) -> Callable[[Command], Command]:
    """Give a command the settings of a procedure.

    The command is a function of `terminal`, of `conf` and of options of its own. `conf` has every setting that the
    command line has, with the values that are given.

    :param arguments: settings that are given by their place → the help of the argument.
    :param required: whether the arguments must be given.
    :param without: settings that the command does not have.
    :param defaults: defaults that are not those of the form.
    """
    offered = {name: setting for name, setting in settings.items() if not setting.only_in_form and name not in without}
    usual = {name: setting.empty for name, setting in offered.items()} | dict(defaults or {})

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(**values: Any) -> None:
            terminal = Terminal(as_json=values.pop("as_json"))
            with terminal.plain_errors():
                conf = {name: _value(setting, values.pop(name)) for name, setting in offered.items()}
                _require_in_range(offered, conf)
                command(terminal, conf, **values)

        parameters = [
            *(_argument(name, offered[name], help_, required=required) for name, help_ in arguments.items()),
            *(_option(name, setting, usual[name]) for name, setting in offered.items() if name not in arguments),
            *(own.replace(kind=inspect.Parameter.KEYWORD_ONLY) for own in _own_options(command)),
            _parameter("as_json", AsJson, default=False),
        ]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def _own_options(command: Command) -> Sequence[inspect.Parameter]:
    """The parameters after `terminal` and `conf`."""
    return [*inspect.signature(command, eval_str=True).parameters.values()][2:]


def _argument(name: str, setting: Setting, help_: str, *, required: bool) -> inspect.Parameter:
    kind: Any = list[str] if setting.is_list else str
    if required:
        return _parameter(name, Annotated[kind, typer.Argument(help=help_)], inspect.Parameter.empty)
    return _parameter(name, Annotated[kind | None, typer.Argument(help=help_)], None)


def _option(name: str, setting: Setting, default: Json) -> inspect.Parameter:
    word = (setting.option or name).replace("_", "-")
    repeat = " Repeat it for more." if setting.is_list else ""
    declared = f"--{word}/--no-{word}" if default is True else f"--{word}"
    option = typer.Option(declared, help=f"{setting.description}{repeat}", rich_help_panel=setting.group or None)
    return _parameter(name, Annotated[_type(setting), option], None if default == [] else default)


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _type(setting: Setting) -> Any:
    if setting.is_list:
        return list[str] | None
    if "boolean" in setting.kinds:
        return bool
    if choices := setting.schema.get("enum"):
        return Literal[tuple(choices)]
    (kind,) = (_TYPES[name] for name in setting.kinds if name != "null")
    return kind | None if "null" in setting.kinds else kind


def _value(setting: Setting, value: Any) -> Json:
    """What the configuration of a run has for an option."""
    if not setting.is_list:
        return value
    texts = list(value or ())
    return [json_document(text) for text in texts] if setting.schema["items"]["type"] == "object" else texts


def _require_in_range(settings: Settings, conf: JsonObject) -> None:
    with usage_errors():
        for name, setting in settings.items():
            setting.require_in_range(name, conf[name])
