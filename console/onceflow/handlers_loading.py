"""Imports the user's handlers by ``module:attribute``.

Rule: what goes wrong in the user's module is told by its own last line and place, not as a fault of ours.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from onceflow_schemas.failure import Misconfigured

if TYPE_CHECKING:
    from onceflow_processor.handlers import Handlers


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
        raise Misconfigured("handlers_not_found", f"{name} cannot be loaded: {_last_line(error)}") from error
    if not isinstance(found, Handlers):
        kind = type(found).__name__
        raise Misconfigured(
            "handlers_invalid",
            f"{name} is not a Handlers instance but of type {kind}",
            "Write `handlers = Handlers()` in that module and name it with --handlers module:handlers.",
        )
    return found


def require_module(name: str, *, folder: Path) -> None:
    """Refuse a name whose module does not exist, without importing it: what it does then is for the processor to see.

    Raises:
        Misconfigured: ``handlers_not_found``.
    """
    module_name = name.partition(":")[0]
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        found = importlib.util.find_spec(module_name) is not None
    except ModuleNotFoundError:
        found = False
    # A package above the module is imported to find it; what goes wrong there is told by the processor.
    except (Exception, SystemExit):  # noqa: BLE001
        return
    if not found:
        raise Misconfigured("handlers_not_found", f"{name} cannot be loaded: there is no module {module_name} here")


def _last_line(error: BaseException) -> str:
    said = traceback.format_exception_only(error)[-1].strip()
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [one for one in frames if "importlib" not in one.filename and one.filename != __file__]
    return f"{said} ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else said
