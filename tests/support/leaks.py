"""Where a string that must never be shown has got to: files, databases, tables, in any of its usual disguises."""

from __future__ import annotations

import base64
import logging
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pyarrow.parquet as pq


def disguises(secret: str) -> frozenset[str]:
    """The string as it is, in Base64 (at any offset) and quoted for a URL."""
    encoded = {base64.b64encode(b"x" * shift + secret.encode())[4:-4].decode() for shift in range(3)}
    return frozenset({secret, quote(secret, safe=""), *encoded})


def leaking(texts: Iterator[tuple[str, str]], secrets: Collection[str]) -> list[str]:
    """The places whose text holds a secret."""
    forms = {form for secret in secrets for form in disguises(secret)}
    return [place for place, text in texts if any(form in text for form in forms)]


def texts_below(folder: Path) -> Iterator[tuple[str, str]]:
    """Every file as text; Parquet and SQLite decoded too."""
    for path in sorted(file for file in folder.rglob("*") if file.is_file()):
        yield str(path), path.read_bytes().decode("utf-8", "replace")
        if path.suffix == ".parquet":
            yield f"{path} (rows)", str(pq.read_table(path).to_pylist())
        elif path.suffix == ".db":
            with closing(sqlite3.connect(path)) as database:
                yield f"{path} (rows)", "\n".join(database.iterdump())


class EveryRecord(logging.Handler):
    """Keeps the text of every record of every logger, with its arguments and exception."""

    def __init__(self) -> None:
        super().__init__(level=0)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.texts.append(f"{self.format(record)} {record.__dict__}")
