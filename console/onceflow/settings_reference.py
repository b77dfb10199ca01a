"""The tables of ``docs/reference/settings.md``, written from the model.

Rule: the page cannot say anything else than the code; a test compares them.
Write the page anew: ``python -m onceflow.settings_reference docs/reference/settings.md``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from onceflow.input_settings import FIELDS
from onceflow.settings_model import INPUTS, is_secret, sections
from onceflow.settings_sources import ALIASES, variable_of

BEGIN = "<!-- from the settings model: begin -->"
END = "<!-- from the settings model: end -->"


def settings_tables() -> str:
    """Return one table per section, Kafka's excepted, whose names are librdkafka's."""
    parts = []
    for section, kind in sections().items():
        if section == "kafka":
            continue
        rows = [_row(f"{section}.{name}", field) for name, field in kind.model_fields.items()]
        head = "| setting | variable | value | default | meaning |\n| --- | --- | --- | --- | --- |"
        parts.append("\n".join([f"### [{section}]", "", (kind.__doc__ or "").strip(), "", head, *rows]))
        if section == "topics":
            parts.append(_inputs_table())
    return "\n\n".join(parts)


def _inputs_table() -> str:
    rows = [f"| `{name}` | {field.meaning} | {field.default} |" for name, field in FIELDS.items()]
    head = "| in each table | meaning | default |\n| --- | --- | --- |"
    about = f"One table per topic that the processor reads, {variable_of(INPUTS)} (`_FILE`) as a JSON list; unset: `topics.events`."
    return "\n".join([f"### [[{INPUTS}]]", "", about, "", head, *rows])


def page_with_tables(page: str) -> str:
    """Return the page with its tables written anew; the words around them stay."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{settings_tables()}\n\n{END}{after}"


def _row(name: str, field: FieldInfo) -> str:
    variables = [variable_of(name), *(alias for alias, setting in ALIASES.items() if setting == name)]
    if is_secret(name):
        variables = [f"{variable}` (`_FILE`)" if variable == variables[-1] else variable for variable in variables]
    shown = ", ".join(f"`{variable}`".replace(")`", ")") for variable in reversed(variables))
    return f"| `{name.partition('.')[2]}` | {shown} | {_values(field)} | {_default(field)} | {field.description} |"


def _values(field: FieldInfo) -> str:
    """Return which values are legal, in short."""
    kind = field.annotation
    if get_origin(kind) is Literal:
        return " or ".join(f"`{value}`" for value in get_args(kind))
    inner = [part for part in get_args(kind) if part is not NoneType] if NoneType in get_args(kind) else [kind]
    name = {"int": "whole number", "float": "seconds", "bool": "`true` or `false`", "tuple": "list"}.get(
        _name(inner[0]), "text"
    )
    rules = [rule for rule in field.metadata if isinstance(rule, Ge | Gt | Le)]
    limits = [_limit(rule) for rule in sorted(rules, key=lambda rule: isinstance(rule, Le))]
    return f"{name}, {', '.join(limits)}" if limits else name


def _name(kind: Any) -> str:
    return getattr(get_origin(kind) or kind, "__name__", "")


def _limit(rule: Ge | Gt | Le) -> str:
    if isinstance(rule, Ge):
        return f"at least {rule.ge}"
    return f"above {rule.gt}" if isinstance(rule, Gt) else f"at most {rule.le}"


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is None or value is PydanticUndefined or value == () or _is_empty_secret(value):
        return f"unset; such as `{field.examples[0]}`" if field.examples else "unset"
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    return f"`{','.join(value) if isinstance(value, tuple) else value}`"


def _is_empty_secret(value: object) -> bool:
    reveal = getattr(value, "get_secret_value", None)
    return reveal is not None and reveal() == ""


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(page_with_tables(file.read_text(encoding="utf-8")), encoding="utf-8")
