"""Each rule on form convicts an offence planted for it, and lets the nearest right thing pass."""

from __future__ import annotations

from tests.tidy import form_rules
from tests.tidy.offence import Offence, Source

PRODUCT = "producer/onceflow_producer/bridge.py"


def found(offences: list[Offence]) -> list[tuple[int, str]]:
    """Line and the first word of each fix."""
    return [(offence.line, offence.fix.split()[0]) for offence in offences]


def test_offence_reads_as_file_line_and_fix() -> None:
    assert str(Source("a/b.py", "").offence(3, "do this")) == "a/b.py:3: do this"


def test_long_file() -> None:
    assert form_rules.long_file(Source(PRODUCT, "x = 1\n" * 400)) == []
    assert found(form_rules.long_file(Source(PRODUCT, "x = 1\n" * 401))) == [(401, "401")]


def test_long_function() -> None:
    body = "    x = 1\n"
    assert form_rules.long_function(Source(PRODUCT, "def short():\n" + body * 69)) == []
    assert found(form_rules.long_function(Source(PRODUCT, "\ndef long():\n" + body * 70))) == [(2, "long")]
    assert found(form_rules.long_function(Source(PRODUCT, "async def long():\n" + body * 70))) == [(1, "long")]
    method = "class A:\n    def long(self):\n" + ("    " + body) * 70
    assert found(form_rules.long_function(Source(PRODUCT, method))) == [(2, "long")]


def test_many_positional() -> None:
    right = (
        "def two(a, b, *, c): ...\n"
        "class A:\n"
        "    def method(self, a, b): ...\n"
        "    @classmethod\n"
        "    def made(cls, a, b): ...\n"
        "    def __exit__(self, kind, error, trace): ...\n"
        "    @typing.override\n"
        "    def emit(self, a, b, c): ...\n"
        "def _private(a, b, c): ...\n"
        "async def app(scope, receive, send): ...\n"
        "def drop_secrets(_logger, _method_name, event_dict): ...\n"
    )
    assert form_rules.many_positional(Source(PRODUCT, right)) == []
    assert found(form_rules.many_positional(Source(PRODUCT, "def three(a, b, c): ...\n"))) == [(1, "three")]
    assert found(form_rules.many_positional(Source(PRODUCT, "def three(a, /, b, c=1): ...\n"))) == [(1, "three")]


def test_module_docstring() -> None:
    assert form_rules.module_docstring(Source(PRODUCT, '"""The bridge."""\n')) == []
    assert found(form_rules.module_docstring(Source(PRODUCT, "import os\n"))) == [(1, "no")]
    assert found(form_rules.module_docstring(Source("schemas/onceflow_schemas/__init__.py", ""))) == [(1, "no")]
    assert form_rules.module_docstring(Source("tests/load/__init__.py", "")) == []


def test_public_docstring() -> None:
    right = (
        "def _private(): ...\n"
        "class _Private:\n"
        "    def method(self): ...\n"
        "class Public:\n"
        "    '''It.'''\n"
        "    def __init__(self): ...\n"
        "    @override\n"
        "    def run(self): ...\n"
        "def public():\n"
        "    '''It.'''\n"
        "    def nested(): ...\n"
    )
    assert form_rules.public_docstring(Source(PRODUCT, right)) == []
    wrong = "class A:\n    def b(self): ...\nif True:\n    async def c(): ...\n"
    assert found(form_rules.public_docstring(Source(PRODUCT, wrong))) == [(1, "A"), (2, "b"), (4, "c")]


def test_vague_name() -> None:
    for path in (
        "schemas/onceflow_schemas/utils.py",
        "producer/common/a.py",
        "tests/kafka_helper.py",
        "tests/lease_manager.py",
    ):
        assert found(form_rules.vague_name(Source(path, ""))) == [(1, "the")], path
    for path in ("schemas/onceflow_schemas/identity.py", "tests/commonmark.py"):
        assert form_rules.vague_name(Source(path, "")) == []
