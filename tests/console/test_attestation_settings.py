"""Attestation keys from text, tables and JSON."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from onceflow.attestation_settings import parse_keys, secret_bytes, zoned_time

SECRET = "s" * 43
DAY = datetime(2026, 5, 1, tzinfo=UTC)


def test_three_forms_of_a_secret() -> None:
    assert secret_bytes("00" * 32) == bytes(32)
    assert secret_bytes("A" * 43) == bytes(32)
    assert secret_bytes("A" * 43 + "=") == bytes(32)
    assert secret_bytes("a text of 32 bytes and some more!") == b"a text of 32 bytes and some more!"
    assert secret_bytes("ab" * 20) == b"ab" * 20, "too short as hex and as base64url, long enough as text"


def test_text_form() -> None:
    first, second = parse_keys(f"a={SECRET}, b = {SECRET}=,")
    assert (first.id, second.id) == ("a", "b")
    assert first.secret == second.secret
    assert first.not_before is None
    assert "sss" not in repr(first)


def test_table_and_json_form_have_lifetimes() -> None:
    table = [{"id": "a", "secret": SECRET, "not_before": "2026-05-01T02:00:00+02:00", "retired_at": DAY}]
    (from_table,) = parse_keys(table)
    assert (from_table.not_before, from_table.retired_at, from_table.revoked_before) == (DAY, DAY, None)
    (from_json,) = parse_keys(f'[{{"id": "a", "secret": "{SECRET}", "revoked_before": "2026-05-01T00:00:00Z"}}]')
    assert from_json.revoked_before == DAY


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        ("a=CANARY", ["key 1 has a secret of 6 bytes; at least 32 are needed"]),
        (f"=  ,b!={SECRET},c=", ["key 1 has an id", "key 1 has no secret", "key 2 has an id", "key 3 has no secret"]),
        (f"a={SECRET},a={SECRET}", ["key 2 repeats the id of an earlier key"]),
        ([{"id": "a", "secret": SECRET, "not_befor": 1}], ["key 1 has an unknown field 'not_befor'"]),
        ([{"id": "a", "secret": SECRET, "not_before": "2026-05-01T00:00:00"}], ["key 1 has a not_before that is not"]),
        ([{"id": "a", "secret": SECRET, "retired_at": 5}], ["key 1 has a retired_at that is not"]),
        ([{"id": 5}], ["key 1 has an id", "key 1 has no secret"]),
        (5, ["must be id=secret,id2=secret2 or a list of tables"]),
        ("[CANARY", ["begins as JSON but is none"]),
        ([f"a={SECRET}"], ["must be id=secret,id2=secret2 or a list of tables"]),
        (",".join(f"k{number}={SECRET}" for number in range(33)), ["has 33 keys; at most 32 are allowed"]),
    ],
)
def test_every_fault_is_told_without_the_secret(value: object, texts: list[str]) -> None:
    with pytest.raises(ValueError) as refused:
        parse_keys(value)
    lines = str(refused.value).splitlines()
    assert len(lines) == len(texts)
    assert all(line.startswith(text) for line, text in zip(lines, texts, strict=True))
    assert "CANARY" not in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_time_has_a_zone() -> None:
    assert zoned_time("2026-05-01T00:00:00Z") == DAY
    assert zoned_time(DAY) == DAY
    for bad in ("2026-05-01", "", 5, DAY.replace(tzinfo=None)):
        with pytest.raises(ValueError):
            zoned_time(bad)
