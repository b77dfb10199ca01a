"""What all sections of the settings have in common."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Port = Annotated[int, Field(ge=0, le=65_535)]


class Section(BaseModel):
    """Frozen, nothing unknown, and no input in error texts."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True, hide_input_in_errors=True)


def split(value: Any) -> Any:
    """Take a comma list for a list: the environment and flags have only text."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def table(value: Any) -> Any:
    """Take a comma list of ``name=text`` for a table."""
    if isinstance(value, str):
        parts = [part.partition("=") for part in value.split(",") if part.strip()]
        return {name.strip(): text.strip() for name, _, text in parts}
    return value
