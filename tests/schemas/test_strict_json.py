"""The strict reader against the standard library's, on generated documents and on those that hurt others."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onceflow_schemas import strict_json
from onceflow_schemas.strict_json import DEPTH_MAX, Document, read_strictly
from tests.schemas.stripe_bodies import CASES, EVENT, FORMS, compact, escaped, json_values, pretty, ruby, spaced

Tree = tuple[str, Any]
ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=6)
READABLE_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0{}[]"), max_size=6)


def deepest(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (1 if isinstance(value, dict | list) else 0) + max(map(deepest, inner), default=0)


def same(one: Any, other: Any) -> bool:
    """Equal with equal types: 1, 1.0 and True are three values, and so are 0.0 and -0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) and (one != 0 or math.copysign(1, one) == math.copysign(1, other))


@CASES
@given(st.binary(max_size=200) | st.binary(max_size=40).map(lambda tail: b'{"a":"' + tail + b'"}'))
@example(b"")
@example(b"\xff")
@example(b"\xef\xbb\xbf{}")
def test_no_bytes_make_it_raise_and_what_it_accepts_is_json(body: bytes) -> None:
    document = read_strictly(body)
    if document.problem is None and not document.replaced:
        assert same(document.value, json.loads(body.decode()))


@CASES
@given(json_values(ANY_TEXT), st.binary(max_size=3), st.randoms(use_true_random=False))
def test_damaged_documents_do_not_make_it_raise(value: Any, noise: bytes, chance: random.Random) -> None:
    body = escaped(value)
    at = chance.randrange(len(body) + 1)
    until = chance.randrange(at, len(body) + 1)
    document = read_strictly(body[:at] + noise + body[until:])
    assert document.problem in {None, "not_utf8", "not_json", "bad_number", "duplicate_key", "too_deep"}


@CASES
@given(json_values(READABLE_TEXT), st.sampled_from(FORMS))
@example(value={"a": -0.0, "b": [-1, 1e300, 2**64, -(2**64)]}, write=compact)
def test_it_agrees_with_the_standard_library_in_every_spelling(value: Any, write: Callable[[Any], bytes]) -> None:
    document = read_strictly(write(value))
    assert (document.problem, document.replaced) == (None, False)
    assert same(document.value, json.loads(compact(value)))


@CASES
@given(json_values(ANY_TEXT))
def test_texts_that_postgresql_cannot_hold_are_replaced(value: Any) -> None:
    document = read_strictly(escaped(value))
    if document.problem is None:
        text = json.dumps(document.value)
        assert "\\u0000" not in text.replace("\\\\", "")
        json.dumps(document.value, ensure_ascii=False).encode()
        plain = json.dumps(value)
        assert document.replaced == (json.dumps(json.loads(plain)) != text)


def trees() -> st.SearchStrategy[Tree]:
    """Documents as trees of pairs, so that an object may hold a key twice."""
    keys = st.sampled_from(["id", "a", "é", "k\n", "&", "\\u0026"])
    return st.recursive(
        st.sampled_from(
            [("plain", text) for text in ("1", '"x y"', "null", "1.50", '"\\u0026"', '"\\\\u003c"', '"\\u003e&"')]
        ),
        lambda inner: (
            st.tuples(st.just("list"), st.lists(inner, max_size=3))
            | st.tuples(st.just("object"), st.lists(st.tuples(keys, inner), max_size=4))
        ),
        max_leaves=10,
    )


def write_tree(tree: Tree, chance: random.Random) -> str:
    """Write a tree with white space and escapes by chance."""
    kind, inner = tree
    space = chance.choice(["", "", " ", "\n  ", "\t", "\r\n\n"])
    if kind == "plain":
        return f"{space}{inner}{space}"
    if kind == "list":
        return f"[{space}" + ",".join(write_tree(item, chance) for item in inner) + "]"
    members = [
        f"{space}{json.dumps(key, ensure_ascii=chance.random() < 0.5)}{space}:{write_tree(item, chance)}"
        for key, item in inner
    ]
    return "{" + ",".join(members) + space + "}"


def has_doubled_key(tree: Tree) -> bool:
    kind, inner = tree
    if kind == "plain":
        return False
    if kind == "list":
        return any(map(has_doubled_key, inner))
    keys = [key for key, _ in inner]
    return len(set(keys)) < len(keys) or any(has_doubled_key(item) for _, item in inner)


@CASES
@given(trees(), st.randoms(use_true_random=False))
def test_every_doubled_key_is_found_and_nothing_else(tree: Tree, chance: random.Random) -> None:
    document = read_strictly(write_tree(tree, chance).encode())
    assert document.problem == ("duplicate_key" if has_doubled_key(tree) else None)
    if tree[0] == "object":
        keys = [key for key, _ in tree[1]]
        assert document.outermost_doubled == {key for key in keys if keys.count(key) > 1}


@pytest.mark.parametrize("write", [compact, pretty, spaced, ruby])
def test_usual_spellings_never_meet_the_slow_reader(
    write: Callable[[Any], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stripe's own spelling among them: the slow reader would cost every event ten times as much."""

    def refuse(_body: bytes) -> Document:
        raise AssertionError

    monkeypatch.setattr(strict_json, "_read_slowly", refuse)
    many = {"id": "é 😀", "items": [{"a": [1, -1.5, True, None], "empty": {}, "text": "a  b\\c"}] * 100}
    for value in (EVENT, many):
        assert read_strictly(write(value)) == Document(value)


def test_needless_escapes_never_meet_the_slow_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_body: bytes) -> Document:
        raise AssertionError

    monkeypatch.setattr(strict_json, "_read_slowly", refuse)
    body = b'{\n  "a\\u0026": "https://x/?a=1\\u0026b=\\u003cc\\u003e",\n  "d": {\n  }\n}'
    assert read_strictly(body) == Document({"a&": "https://x/?a=1&b=<c>", "d": {}})


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a":"\\\\u0026"}', {"a": "\\u0026"}),
        (b'{"a":"\\\\\\u0026"}', {"a": "\\&"}),
        (b'{"a":"\\\\\\\\u003c \\u003C"}', {"a": "\\\\u003c <"}),
    ],
)
def test_an_escaped_backslash_before_the_letters_of_an_escape_stays(body: bytes, value: Any) -> None:
    assert read_strictly(body) == Document(value)


@pytest.mark.parametrize("key", [b"&", b"<", b">"])
def test_a_key_doubled_by_a_needless_escape_is_found(key: bytes) -> None:
    escape = b"\\u00%02x" % ord(key)
    for body in (b'{"%b":1,"%b":1}' % (key, escape), b'{"%b":1,"%b":1}' % (escape, escape)):
        assert read_strictly(body).problem == "duplicate_key"


@pytest.mark.parametrize("inner", ["", "1", '"]]"'])
@pytest.mark.parametrize("before", ["", " ", '{"\\u0026":'])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_the_limit_of_depth_is_the_same_in_every_spelling(opening: str, before: str, inner: str) -> None:
    inner = inner or ("{}" if opening != "[" else "")
    levels = (1 if before.startswith("{") else 0) + (1 if inner == "{}" else 0)
    closing = "]" if opening == "[" else "}"

    def body(count: int) -> bytes:
        depth = count - levels
        return (
            before + opening * depth + inner + closing * depth + ("}" if levels and before.strip() else "")
        ).encode()

    assert deepest(json.loads(body(DEPTH_MAX))) == DEPTH_MAX
    assert read_strictly(body(DEPTH_MAX)).problem is None
    assert read_strictly(body(DEPTH_MAX + 1)).problem == "too_deep"


def test_many_brackets_side_by_side_are_not_deep() -> None:
    for body in (
        b"[" + b"[]," * 100 + b"1]",
        b" [" + b'"\\u0041[[[[",' * 100 + b"1]",
        b'["' + b"[" * 100 + b'","\\/"]',
        b'["\\/",' + b"[" * (DEPTH_MAX - 1) + b"]" * (DEPTH_MAX - 1) + b",{}" * 10 + b"]",
    ):
        assert read_strictly(body).problem is None


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "not_json"),
        (b"hello", "not_json"),
        (b"{} {}", "not_json"),
        (b"\xef\xbb\xbf{}", "not_json"),
        (b'{"a":1,}', "not_json"),
        (b'{"a":"\n"}', "not_json"),
        (b'{"a":"\x00"}', "not_json"),
        (b"\xff", "not_utf8"),
        ('{"a":1}'.encode("utf-16"), "not_utf8"),
        (b'{"a":"\xed\xa0\x80"}', "not_utf8"),
        (b'{"a":NaN}', "bad_number"),
        (b'{"a":-Infinity}', "bad_number"),
        (b'{"a":1e999}', "bad_number"),
        (b'{"a":-1e999}', "bad_number"),
        (b'{"a":' + b"9" * 4301 + b"}", "bad_number"),
        (b"[" * 100_000 + b"]" * 100_000, "too_deep"),
        (b'{"a":' * 900 + b"1" + b"}" * 900, "too_deep"),
        (b'{"id":"evt_1","id":"evt_2"}', "duplicate_key"),
        (b'{"id":"evt_1","\\u0069d":"evt_1"}', "duplicate_key"),
    ],
)
def test_documents_that_readers_could_disagree_about(body: bytes, problem: str) -> None:
    document = read_strictly(body)
    assert document.problem == problem
    assert document.detail


@pytest.mark.parametrize("body", [b"-0", b"[-0.0]", b'"\\ud83d\\ude00"', b"9" * 4300, b" 1 ", b"1E5", b'"\\\\u0000"'])
def test_odd_documents_that_every_reader_understands(body: bytes) -> None:
    document = read_strictly(body)
    assert (document.problem, document.replaced) == (None, False)
    assert same(document.value, json.loads(body))


def test_the_first_fault_is_told_and_the_value_stays_readable() -> None:
    document = read_strictly(b'{"id":"evt_1","a":{"b":1,"b":2},"c":NaN,"d":[' + b"1" * 5000 + b"]}")
    assert (document.problem, document.detail) == ("duplicate_key", "the key 'b' stands twice in one object")
    assert document.value == {"id": "evt_1", "a": {"b": 2}, "c": None, "d": [None]}
    assert document.outermost_doubled == frozenset()


def test_nul_and_lone_surrogates_become_the_replacement_character() -> None:
    document = read_strictly(b'{"k\\u0000":["a\\u0000b",["\\ud83d"],{"d":"\\ude00"}],"e":"\\ud83d\\ude00"}')
    assert (document.problem, document.replaced) == (None, True)
    assert document.value == {"k\ufffd": ["a\ufffdb", ["\ufffd"], {"d": "\ufffd"}], "e": "😀"}


@pytest.mark.parametrize("escape", ["\\u0000", "\\ud800", "\\uD800", "\\udbff", "\\uDC00", "\\udfff", "\\uDFFF"])
def test_each_escape_that_postgresql_cannot_hold_is_replaced(escape: str) -> None:
    for body in (f'{{"a":"{escape}"}}', f'{{"a": ["{escape}"], "b": {{}}}}'):
        document = read_strictly(body.encode())
        assert (document.problem, document.replaced) == (None, True)
        assert "\ufffd" in document.value["a"]


def test_a_text_alone_is_replaced_too() -> None:
    assert read_strictly(b'"\\ud800"') == Document("\ufffd", replaced=True)


def test_keys_that_the_replacement_makes_equal_count_as_doubled() -> None:
    assert read_strictly(b'{"\\ud800":1,"\\ud801":2}').problem == "duplicate_key"


def test_two_hundred_thousand_keys_are_read() -> None:
    """As an object whose keys are all there once, and as one whose last key is there twice."""
    members = b",".join(b'"%d":0' % number for number in range(200_000))
    assert len(read_strictly(b"{" + members + b"}").value) == 200_000
    assert read_strictly(b"{" + members + b',"7":1}').outermost_doubled == {"7"}
