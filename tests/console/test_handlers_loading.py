"""The user's module, found or not, good or not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceflow.handlers_loading import load_handlers
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
    ("source", "told"),
    [
        ("x = 1\nraise ValueError('of the user')\n", "ValueError: of the user ({file}, line 2)"),
        ("raise ValueError('one\\ntwo')\n", "ValueError: one ({file}, line 1)"),
        ("x = 1\ndef x(:\n", "SyntaxError: invalid syntax ({file}, line 2)"),
        (
            "if 1:\nx = 1\n",
            "IndentationError: expected an indented block after 'if' statement on line 1 ({file}, line 2)",
        ),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3 ({file}, line 2)"),
        ("import no_such_place\n", "ModuleNotFoundError: No module named 'no_such_place' ({file}, line 1)"),
        ("raise RuntimeError\n", "RuntimeError ({file}, line 1)"),
        ("raise ValueError('postgresql://u:CANARY@h/d')\n", "ValueError: postgresql://u:***@h/d ({file}, line 1)"),
    ],
)
def test_what_is_wrong_inside_the_module_is_told_with_its_place(source: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "shop_b.py"
    file.write_text(source)
    fault = refused("shop_b:handlers", tmp_path)
    assert fault.code == "handlers_not_found"
    assert fault.message == f"shop_b:handlers cannot be loaded: {told.format(file=file)}"
    assert fault.hint.startswith("Mend ")


def test_a_syntax_error_of_another_module_is_told_with_that_place(tmp_path: Path) -> None:
    (tmp_path / "shop_k.py").write_text("import shop_l\n")
    (tmp_path / "shop_l.py").write_text("\n\ndef x(:\n")
    assert f"({tmp_path / 'shop_l.py'}, line 3)" in refused("shop_k:handlers", tmp_path).message


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("shop_m:handlers", "there is no module shop_m in {folder} or among the installed ones"),
        ("shop_m.web:handlers", "there is no module shop_m in {folder} or among the installed ones"),
        ("shop_n.web:handlers", "there is no module shop_n.web in {folder} or among the installed ones"),
        ("shop_n:handlers", "AttributeError: module 'shop_n' has no attribute 'handlers'"),
    ],
)
def test_a_wrong_name_is_told_as_such(name: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "shop_n.py").write_text("x = 1\n")
    fault = refused(name, tmp_path)
    assert fault.code == "handlers_not_found"
    assert fault.message == f"{name} cannot be loaded: {told.format(folder=tmp_path)}"
    assert fault.hint == "Check --handlers module:attribute."


def test_something_else_than_handlers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shop_c.py").write_text("handlers = []\n")
    fault = refused("shop_c:handlers", tmp_path)
    assert fault.code == "handlers_invalid"
    assert fault.message == "shop_c:handlers is not a Handlers instance but of type list"
