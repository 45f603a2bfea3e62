"""A report as a document: outcome, what to do now, what happened, details; texts and pages are made from it (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from pulsar_fleet.cluster.document import Document

NOTHING_TO_DO = "Nothing to do."


class Outcome(StrEnum):
    """How a run ended, for a person."""

    SUCCEEDED = "succeeded"
    ATTENTION = "attention"
    """It did what it had to; something is left for a person."""
    FAILED = "failed"

    @property
    def text(self) -> str:
        """The outcome as a symbol and a word: a colour alone does not reach everybody."""
        return _TEXTS[self]


_TEXTS = {
    Outcome.SUCCEEDED: "✓ Succeeded",
    Outcome.ATTENTION: "⚠ Needs attention",
    Outcome.FAILED: "✗ Failed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Section(Document):
    """A part with a title, folded on a page.

    :param text: Markdown.
    """

    title: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Document):
    """What a run tells people. Texts are Markdown.

    :param headline: the outcome in one sentence, as one line.
    :param to_do: what a person has to do now, a text each; empty if there is nothing.
    :param body: what everybody reads: what happened, then a table with a row for each namespace.
    :param details: what some people look up.
    """

    SCHEMA_VERSION: ClassVar[int] = 1

    outcome: Outcome
    headline: str
    to_do: tuple[str, ...] = ()
    body: tuple[str, ...] = ()
    details: tuple[Section, ...] = ()

    @property
    def to_do_text(self) -> str:
        """What to do now: one text as it is, several as a list."""
        if len(self.to_do) < 2:
            return f"To do: {self.to_do[0]}" if self.to_do else NOTHING_TO_DO
        return "\n".join(["To do:", "", *(f"* {text}" for text in self.to_do)])

    def markdown(self) -> str:
        """For logs, terminals and Airflow's own pages."""
        parts = [f"# {self.headline}", f"**{self.outcome.text}.** {self.to_do_text}", *self.body]
        parts += [f"## {section.title}\n\n{section.text}" for section in self.details]
        return "\n\n".join(parts) + "\n"


def texts(*parts: str) -> tuple[str, ...]:
    """The parts that say something, for `body`."""
    return tuple(part for part in parts if part)


def sections(parts: Iterable[tuple[str, str]]) -> tuple[Section, ...]:
    """Title and text of each part that says something, for `details`."""
    return tuple(Section(title=title, text=text) for title, text in parts if text)
