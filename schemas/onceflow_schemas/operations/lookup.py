"""Where to look for what became of a step.

Rule: by the stored id where there is one, else by a complete list; never by Stripe's search, whose silence proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onceflow_schemas.operations.freeze import STORED
from onceflow_schemas.operations.operation import Step


def how_to_look(step: Step, external_id: str | None) -> Mapping[str, Any] | None:
    """Return one way to look: {"retrieve": path}, {"list": path, "params": {...}}, or the request of another kind.

    Args:
        step: the frozen step.
        external_id: the stored object's id, or that of an object which a webhook named.

    Returns:
        None when nothing can be looked up.
    """
    look = step.lookup
    if look is None:
        return None
    retrieve = look.get("retrieve")
    if retrieve is not None and (external_id is not None or STORED not in retrieve):
        return {"retrieve": retrieve.replace(STORED, external_id or "")}
    if "list" in look:
        return {"list": look["list"], "params": look["params"]}
    return look if "url" in look else None
