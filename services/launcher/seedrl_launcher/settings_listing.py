"""The list of all settings, read from the configuration models: key, what it takes, default and meaning."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pydantic import BaseModel
from rich.table import Table

from seedrl_core.config import ENV_DELIMITER, ENV_PREFIX, Settings

_NAMES = {"boolean": "true, false", "integer": "integer", "number": "number", "object": "table", "string": "text"}
_BOUNDS = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="}
_PAGE_BEGIN = f"""# Settings

Every setting of every process. `make settings` writes this page; `seedrl config [WORD]` lists the same.

- A flag, `--set KEY=VALUE`, wins over the variable of the environment, that over the TOML file that `--config` names,
  that over the default.
- The variable is the key in capitals, with `{ENV_DELIMITER}` for each dot and `{ENV_PREFIX}` before it.
- Values are written as in TOML, text also without quotes. Where the default is `None`, leave the key out to have it.
- Tokens are secrets and no settings: [security.md](security.md).
"""
_TABLE_HEAD = ("| setting | takes | default | meaning | variable |", "|---|---|---|---|---|")


@dataclass(frozen=True)
class Setting:
    """One setting as `--set` takes it.

    Attributes:
      section: the key without its last part.
      about: what the section is.
      takes: which values are allowed, in words.
      default: as plain JSON has it.
    """

    key: str
    variable: str
    section: str
    about: str
    takes: str
    default: Any
    description: str

    @property
    def shown_default(self) -> str:
        """As it is written in a TOML file."""
        return "None" if self.default is None else json.dumps(self.default, ensure_ascii=False)


def all_settings(containing: str = "") -> list[Setting]:
    """Every setting whose key, variable or description contains the text."""
    wanted = containing.lower()
    return [
        one
        for one in _walk(Settings, "")
        if any(wanted in text.lower() for text in (one.key, one.variable, one.description))
    ]


def settings_table(settings: list[Setting]) -> Table:
    """The settings for a terminal."""
    table = Table(box=None, pad_edge=False)
    for heading in ("setting", "default", "meaning"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "setting")
    for one in settings:
        table.add_row(one.key, one.shown_default, f"{one.description} ({one.takes})")
    return table


def settings_page(settings: list[Setting]) -> str:
    """The settings as a page of Markdown, a table for each section."""
    lines = [_PAGE_BEGIN]
    for section, members in groupby(settings, key=lambda one: (one.section, one.about)):
        lines += ["## {}\n\n{}\n".format(*section), *_TABLE_HEAD]
        for one in members:
            meaning, takes = (text.replace("|", r"\|") for text in (one.description, one.takes))
            lines.append(f"| `{one.key}` | {takes} | `{one.shown_default}` | {meaning} | `{one.variable}` |")
        lines.append("")
    return "\n".join(lines)


def _walk(model: type[BaseModel], prefix: str) -> Iterator[Setting]:
    """Those of the model itself before those of its sections, so that each section is in one piece."""
    schemas, defaults = model.model_json_schema()["properties"], model.model_construct().model_dump(mode="json")
    sections: list[tuple[type[BaseModel], str]] = []
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            sections.append((field.annotation, f"{key}."))
            continue
        yield Setting(
            key=key,
            variable=ENV_PREFIX + key.upper().replace(".", ENV_DELIMITER),
            section=prefix.removesuffix("."),
            about=(model.__doc__ or "").strip(),
            takes=_takes(schemas[name]),
            default=defaults[name],
            description=field.description or "",
        )
    for section, section_prefix in sections:
        yield from _walk(section, section_prefix)


def _takes(schema: Mapping[str, Any]) -> str:
    """What a JSON schema allows, besides null, in words."""
    (allowed,) = (one for one in schema.get("anyOf", [schema]) if one["type"] != "null")
    if "enum" in allowed:
        return ", ".join(allowed["enum"])
    if allowed["type"] == "array":
        return f"list of {_takes(allowed['items'])}"
    if allowed.get("format") == "path":
        return "path"
    bounds = [f"{sign} {allowed[bound]}" for bound, sign in _BOUNDS.items() if bound in allowed]
    return " ".join([_NAMES[allowed["type"]], ", ".join(bounds)]).strip()
