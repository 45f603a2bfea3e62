"""The generated parts of a page: each stands between two comments, which stay."""

from __future__ import annotations

from collections.abc import Mapping


def with_parts(page: str, parts: Mapping[str, str]) -> str:
    """The page with up-to-date parts between their comments; a part without comments is left out.

    :param parts: name of a part, as its comments have it → its text.
    """
    for name, text in parts.items():
        before, begin, rest = page.partition(f"<!-- {name}: made by make docs -->")
        _, end, after = rest.partition(f"<!-- end of {name} -->")
        if begin and end:
            page = f"{before}{begin}\n{text}\n{end}{after}"
    return page
