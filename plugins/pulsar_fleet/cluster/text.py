"""Numbers, durations and names in the texts for people (pure)."""

from __future__ import annotations

import difflib
import math
import shlex
from collections.abc import Collection, Iterable, Mapping

FEW = 3


def counted(number: int, noun: str) -> str:
    """`1 change`, `1,200 policies`, `2 entries`, `3 batches`."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith(("cy", "ry")):
        return f"{number:,} {noun[:-1]}ies"
    return f"{number:,} {noun}{'es' if noun.endswith('ch') else 's'}"


def duration(seconds: float) -> str:
    """For operators: `20 s`, `2 min 20 s`, `38 min`, `2.5 h` or `4 days 22 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 10:
        return f"{minutes} min {rest} s"
    if minutes < 120:
        return f"{minutes} min"
    if minutes < 2880:
        return f"{minutes / 60:.1f} h"
    days, hours = divmod(round(minutes / 60), 24)
    return f"{counted(days, 'day')} {hours} h"


def byte_size(count: float) -> str:
    """For operators: `512 B`, `1.5 KiB`, `64 MiB` or `3.2 GiB`."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    power = min(int(math.log(count, 1024)) if count >= 1 else 0, len(units) - 1)
    number = count / 1024**power
    return f"{number:.0f} {units[power]}" if power == 0 or number >= 10 else f"{number:.1f} {units[power]}"


def listed(names: Iterable[object], most: int = FEW) -> str:
    """The first `most` names, and how many more there are: `a, b, c and 9,995 more`; `none` without a name."""
    texts = [str(name) for name in names]
    if not texts:
        return "none"
    more = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return f"{', '.join(texts[:most])}{more}"


def command_line(*words: object) -> str:
    """`pulsar-fleet undo cli/apply-1`: a command as a shell takes it, with each word in quotes that needs them."""
    return shlex.join(["pulsar-fleet", *map(str, words)])


def with_names(text: str, names: Mapping[str, str]) -> str:
    """The text with each `{role}` replaced by the name that has this role: braces of other kinds stay."""
    for role, name in names.items():
        text = text.replace(f"{{{role}}}", name)
    return text


def did_you_mean(name: str, names: Collection[str], otherwise: str) -> str:
    """`did you mean 'name'?` with the nearest of the names that exist, or `otherwise` where none is near."""
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise
