"""Dataclasses as JSON documents, by pydantic: artefacts, XComs, plans, requests and reports.

Pydantic is imported by the first conversion, so that executors that only read messages do not need it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Self

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import Json, JsonObject


def parse_json(text: str, name: str) -> Json:
    """What a person wrote as JSON.

    :param name: of the setting or variable, or the text itself.
    :raises InvalidRequest: it is not JSON.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidRequest(f"{name} is not valid JSON: {error}.") from error


class Document:
    """A dataclass that is stored or handed over as a JSON object whose keys are its fields.

    Enums are written as their values, tuples as arrays. Unknown keys are ignored when a document is read.
    """

    __slots__ = ()

    SCHEMA_VERSION: ClassVar[int | None] = None
    """Written as `schema_version`."""
    OTHER_VERSION: ClassVar[str] = ""
    """What to do about a document of another version; empty: the version is not checked."""
    PROPERTIES: ClassVar[tuple[str, ...]] = ()
    """Properties that are written too; a reader derives them again."""
    INDENT: ClassVar[int | None] = None
    """Spaces of indentation in a file, for documents that people read."""

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        document: JsonObject = _adapter(type(self)).dump_python(self, mode="json", by_alias=True)
        return document

    @classmethod
    def from_json(cls, document: Json) -> Self:
        """Read what `to_json` wrote; `InvalidRequest` for another schema version, a missing key or a wrong type."""
        from pydantic import ValidationError

        try:
            value: Self = _adapter(cls).validate_python(document)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "document"
            raise InvalidRequest(f"This is not a valid {_noun(cls)}: {where}: {first['msg']}.") from error
        return value

    def to_bytes(self) -> bytes:
        """As the content of a file."""
        content: bytes = _adapter(type(self)).dump_json(self, indent=self.INDENT, by_alias=True)
        return content

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read what `to_bytes` wrote; errors as those of `from_json`."""
        return cls.from_json(json.loads(content))

    def document_of(self) -> Json:
        """The document of a class that overrides it, and `fields_of`, for another shape; of plain values and tuples."""
        raise NotImplementedError

    @classmethod
    def fields_of(cls, document: Json) -> Json:
        """The fields from their document."""
        if cls.OTHER_VERSION and isinstance(document, dict) and document.get("schema_version") != cls.SCHEMA_VERSION:
            raise InvalidRequest(
                f"This {_noun(cls)} has schema version {document.get('schema_version')!r}, this release reads "
                f"{cls.SCHEMA_VERSION}: {cls.OTHER_VERSION}."
            )
        return document

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        fields = dict(handler.resolve_ref_schema(handler(source)))
        # The reference of a class must lead to its document, not to its fields.
        reference = fields.pop("ref")
        serialization = None
        if cls.document_of is Document.document_of:
            names = {name: name for name in cls.PROPERTIES}
            if cls.SCHEMA_VERSION is not None:
                names["schema_version"] = "SCHEMA_VERSION"
            computed = [
                core_schema.computed_field(name, core_schema.any_schema(), alias=key) for key, name in names.items()
            ]
            fields["schema"] = {**fields["schema"], "computed_fields": computed}
        else:
            serialization = core_schema.plain_serializer_function_ser_schema(cls.document_of)
        return core_schema.no_info_before_validator_function(
            cls.fields_of, fields, ref=reference, serialization=serialization
        )


def _noun(cls: type) -> str:
    """`verify request` of `VerifyRequest`."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in cls.__name__).strip()


class ArrayDocument(Document):
    """A dataclass that is stored as a JSON array of its fields, because there may be thousands."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]]

    def document_of(self) -> Json:
        """The array."""
        return [getattr(self, name) for name in self.__match_args__]

    @classmethod
    def fields_of(cls, document: Json) -> Json:
        """The fields from the array."""
        return dict(zip(cls.__match_args__, document, strict=True)) if isinstance(document, list) else document


class TextValue:
    """A value that documents hold as text: `str` writes it, `parse` reads it."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text."""
        raise NotImplementedError

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(
            lambda value: value if isinstance(value, cls) else cls.parse(value),
            serialization=core_schema.to_string_ser_schema(),
        )


@dataclass(frozen=True, slots=True)
class Rounded:
    """An annotation of a number: documents hold it with this many decimals."""

    decimals: int

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return _written_by(lambda value: round(value, self.decimals), handler(source))


@dataclass(frozen=True, slots=True)
class Sorted:
    """An annotation of a set of names: documents hold it in order, so that equal values have equal documents."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return _written_by(lambda values: sorted(map(str, values)), handler(source))


def _written_by(write: Callable[[Any], Json], schema: Any) -> Any:
    from pydantic_core import core_schema

    serialization = core_schema.plain_serializer_function_ser_schema(write)
    return core_schema.no_info_after_validator_function(lambda value: value, schema, serialization=serialization)


def _new_adapter(cls: type) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(cls)


_adapter: Callable[[type], Any] = cache(_new_adapter)
