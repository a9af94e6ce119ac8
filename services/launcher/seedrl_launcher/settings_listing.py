"""The list of all settings: key, default and meaning, read from the configuration models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from rich.table import Table

from seedrl_core.config import Settings


@dataclass(frozen=True)
class Setting:
    """One setting as `--set` takes it."""

    key: str
    default: Any
    description: str
    choices: tuple[str, ...] = ()


def all_settings(containing: str = "") -> list[Setting]:
    """Every setting whose key or description contains the text."""
    wanted = containing.lower()
    return [one for one in _walk(Settings, "") if wanted in one.key.lower() or wanted in one.description.lower()]


def settings_table(settings: list[Setting]) -> Table:
    """The settings for a terminal."""
    table = Table(box=None, pad_edge=False)
    for heading in ("setting", "default", "meaning"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "setting")
    for one in settings:
        meaning = one.description + (f" ({', '.join(one.choices)})" if one.choices else "")
        table.add_row(one.key, str(one.default), meaning)
    return table


def _walk(model: type[BaseModel], prefix: str) -> Iterator[Setting]:
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _walk(field.annotation, f"{key}.")
            continue
        default = field.get_default(call_default_factory=True, validated_data={})
        plain = default if isinstance(default, bool | int | float | str | None) else str(default)
        yield Setting(key, plain, field.description or "", tuple(_choices(field.annotation)))


def _choices(annotation: Any) -> Iterator[str]:
    """The values of a Literal anywhere in the annotation."""
    for part in get_args(annotation):
        if get_origin(annotation) is Literal:
            yield str(part)
        else:
            yield from _choices(part)
