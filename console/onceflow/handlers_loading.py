"""Imports the user's handlers by ``module:attribute``.

Rule: what goes wrong in the user's module is told by its own last line and place, not as a fault of ours.
"""

from __future__ import annotations

import importlib
import re
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from onceflow.redaction import redacted
from onceflow_schemas.failure import Misconfigured

if TYPE_CHECKING:
    from onceflow_processor.handlers import Handlers

_MEND_HINT = "Mend what is named there; `python FILE` shows more of it."
_NOT_THEIRS = (__file__, "<frozen importlib", str(Path(importlib.__file__).parent))


def load_handlers(name: str, *, folder: Path) -> Handlers:
    """Return the ``Handlers`` that the name means.

    Args:
        name: ``module:attribute``; the attribute may have dots.
        folder: where modules are looked for first, as ``python`` does with the folder it is started in.

    Raises:
        Misconfigured: ``handlers_not_found`` when module or attribute cannot be imported, ``handlers_invalid`` when
            the attribute is something else.
    """
    from onceflow_processor.handlers import Handlers  # noqa: PLC0415 - the processor is loaded only where it runs

    module_name, _, attribute = name.partition(":")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        found = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    # Whatever the user's module raises while it is imported, SystemExit too, is theirs to mend.
    except (Exception, SystemExit) as error:
        raise _not_loaded(name, error, folder=folder) from error
    if not isinstance(found, Handlers):
        kind = type(found).__name__
        raise Misconfigured(
            "handlers_invalid",
            f"{name} is not a Handlers instance but of type {kind}",
            "Write `handlers = Handlers()` in that module and name it with --handlers module:handlers.",
        )
    return found


def _not_loaded(name: str, error: BaseException, *, folder: Path) -> Misconfigured:
    """Return what is to be told: the name is wrong, or something is wrong inside the module."""
    module_name = name.partition(":")[0]
    parents = {module_name[: place.start()] for place in re.finditer(r"\.|$", module_name)}
    if isinstance(error, ModuleNotFoundError) and error.name in parents:
        reason = f"there is no module {error.name} in {folder} or among the installed ones"
        return Misconfigured("handlers_not_found", f"{name} cannot be loaded: {reason}")
    place = _place(error)
    told = f"{name} cannot be loaded: {_said(error)}" + (f" ({place})" if place else "")
    return Misconfigured("handlers_not_found", told, _MEND_HINT if place else None)


def _said(error: BaseException) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    first = next(iter(text.splitlines()), "")
    kind = type(error).__name__
    return redacted(f"{kind}: {first}" if first else kind)


def _place(error: BaseException) -> str:
    """Return file and line in the user's code; empty when it did not come so far."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}" if error.lineno else error.filename
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [one for one in frames if not one.filename.startswith(_NOT_THEIRS)]
    return f"{theirs[-1].filename}, line {theirs[-1].lineno}" if theirs else ""
