"""The parameters of each address, read from Stripe's own Python library.

``python -m tests.simulator.sdk_parameters`` writes them to the simulator's ``parameters.json``, which a test compares.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import stripe

from onceflow_simulator.resources import add_all
from onceflow_simulator.routes import Routes

PATH = Path(__file__).parents[2] / "simulator" / "onceflow_simulator" / "parameters.json"
PLACE = re.compile(r"{[a-z_0-9]+}")
LIBRARY = Path(stripe.__file__).parent
SERVICE_CALL = re.compile(r"self\._request\(\s*'(\w+)',\s*'(/v1/[^']+)'")
PARAMS_CLASS = re.compile(r"params: (?:Optional\[)?['\"]?(?:Optional\[)?(\w+Params)")


def read() -> dict[str, list[str]]:
    """Method and address (``POST /v1/refunds/{}``) -> the names that it takes, for every address of the simulator."""
    routes = Routes()
    add_all(routes)
    served = {f"{route.method} {PLACE.sub('{}', route.template)}" for route in routes.all}
    names = _names_by_class()
    found: dict[str, list[str]] = {}
    for path in sorted(LIBRARY.rglob("_*_service.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if (
                not isinstance(node, ast.FunctionDef)
                or (call := SERVICE_CALL.search(text := ast.unparse(node))) is None
            ):
                continue
            address = f"{call[1].upper()} {PLACE.sub('{}', call[2])}"
            if address in served:
                params = PARAMS_CLASS.search(text)
                found[address] = names[params[1]] if params else []
    return dict(sorted(found.items()))


def kept() -> dict[str, list[str]]:
    """What the simulator has."""
    found: dict[str, list[str]] = json.loads(PATH.read_text("utf-8"))
    return found


def _names_by_class() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    # The folders hold what is nested (checkout.Session): the plain names come first and stay.
    for path in sorted((LIBRARY / "params").rglob("_*.py"), key=lambda path: len(path.parts)):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name.endswith("Params"):
                found.setdefault(node.name, _fields(node))
    return found


def _fields(node: ast.ClassDef) -> list[str]:
    items = [item.target for item in node.body if isinstance(item, ast.AnnAssign)]
    return sorted(target.id for target in items if isinstance(target, ast.Name))


if __name__ == "__main__":
    PATH.write_text(json.dumps(read(), indent=0) + "\n", "utf-8")
