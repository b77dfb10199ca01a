"""The user's module, found or not, good or not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceflow.handlers_loading import load_handlers, require_module
from onceflow_processor.handlers import Handlers
from onceflow_schemas.failure import Misconfigured


@pytest.fixture(autouse=True)
def restore() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def refused(name: str, folder: Path) -> Misconfigured:
    with pytest.raises(Misconfigured) as error:
        load_handlers(name, folder=folder)
    return error.value


def test_a_module_of_the_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / "shop_a").mkdir()
    (tmp_path / "shop_a" / "web.py").write_text(
        "from onceflow import Handlers\nclass Registry:\n    handlers = Handlers()\n"
    )
    assert isinstance(load_handlers("shop_a.web:Registry.handlers", folder=tmp_path), Handlers)


def test_the_shipped_example_is_found(tmp_path: Path) -> None:
    assert isinstance(load_handlers("onceflow.examples.payments:handlers", folder=tmp_path), Handlers)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (None, "ModuleNotFoundError: No module named 'shop_b'"),
        ("x = 1\n", "has no attribute 'handlers'"),
        ("x = 1\nraise ValueError('of the user')\n", "ValueError: of the user ({folder}/shop_b.py, line 2)"),
        ("def x(:\n", "SyntaxError"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3"),
        ("import nowhere_to_be_found\n", "No module named 'nowhere_to_be_found' ({folder}/shop_b.py, line 1)"),
    ],
)
def test_what_cannot_be_loaded_is_told_by_its_last_line(source: str | None, text: str, tmp_path: Path) -> None:
    if source is not None:
        (tmp_path / "shop_b.py").write_text(source)
    fault = refused("shop_b:handlers", tmp_path)
    assert fault.code == "handlers_not_found"
    assert text.format(folder=tmp_path) in fault.message


def test_something_else_than_handlers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shop_c.py").write_text("handlers = []\n")
    fault = refused("shop_c:handlers", tmp_path)
    assert fault.code == "handlers_invalid"
    assert fault.message == "shop_c:handlers is not a Handlers instance but of type list"


def test_a_module_is_looked_for_without_running_it(tmp_path: Path) -> None:
    (tmp_path / "shop_f.py").write_text("raise ValueError\n")
    (tmp_path / "shop_g").mkdir()
    (tmp_path / "shop_g" / "__init__.py").write_text("raise ValueError\n")
    require_module("shop_f:handlers", folder=tmp_path)
    require_module("shop_g.web:handlers", folder=tmp_path)
    for name in ("shop_h", "shop_h.web"):
        with pytest.raises(Misconfigured, match="handlers_not_found") as missing:
            require_module(f"{name}:handlers", folder=tmp_path)
        assert missing.value.message == f"{name}:handlers cannot be loaded: there is no module {name} here"
