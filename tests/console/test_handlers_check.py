"""Handlers are checked by another process, which says what is wrong with them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from onceflow.handlers_check import check_handlers
from onceflow_schemas.failure import Misconfigured

BEGINNING = "from onceflow import Handlers\nhandlers = Handlers()\n"


def refused(folder: Path, source: str) -> Misconfigured:
    (folder / "shop_check.py").write_text(source)
    with pytest.raises(Misconfigured) as error:
        check_handlers("shop_check:handlers", folder=folder)
    return error.value


def test_good_handlers_pass_and_are_not_imported_here(tmp_path: Path) -> None:
    source = "import os\nprint(os.environ['DATABASE_URL'][:13])\n@handlers.on('a.b')\ndef one(event, tx):\n    pass\n"
    (tmp_path / "shop_check.py").write_text(BEGINNING + source)
    check_handlers("shop_check:handlers", folder=tmp_path)
    assert "shop_check" not in sys.modules


def test_every_fault_of_every_registration_is_told(tmp_path: Path) -> None:
    faulty = "".join(f"@handlers.on('a b', facts=5)\ndef h{number}(event):\n    pass\n" for number in range(10))
    fault = refused(tmp_path, f"{BEGINNING}print('noise')\n{faulty}")
    assert fault.code == "handlers_invalid"
    assert len(fault.faults) == 30
    assert "facts= of the handler 'h9' is not a function of the event" in fault.faults
    assert fault.message == "30 faults"


def test_what_cannot_be_loaded_is_told_with_its_place_and_hint(tmp_path: Path) -> None:
    fault = refused(tmp_path, "def x(:\n")
    assert fault.code == "handlers_not_found"
    assert f"({tmp_path / 'shop_check.py'}, line 1)" in fault.message
    assert fault.hint.startswith("Mend ")


def test_a_module_that_ends_the_process_or_never_ends_is_told_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = refused(tmp_path, "import os\nprint('last words', flush=True)\nos._exit(7)\n")
    assert fault.code == "handlers_not_found"
    assert fault.message == (
        "shop_check:handlers cannot be loaded: loading it ended with status 7; it said last:\n  | last words"
    )
    monkeypatch.setattr("onceflow.handlers_check.CHECK_SECONDS_MAX", 2.0)
    assert refused(tmp_path, "import threading\nthreading.Event().wait()\n").message == (
        "shop_check:handlers cannot be loaded: loading it did not end"
    )
