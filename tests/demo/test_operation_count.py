"""The count of operations is tried: what is lost, doubled or only claimed must be named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onceflow.demo.operation_count import Movement, OperationEntry, OperationSums, count_operations

REFUND = OperationEntry("op-1", "give_back", "pi_1", "succeeded", unknown=True)
CHARGE = OperationEntry("op-2", "charge_order", "order-1", "succeeded", unknown=False)
DECLINED = OperationEntry("op-3", "charge_order", "order-2", "failed", unknown=True)
ENTRIES = [REFUND, CHARGE, DECLINED]
MOVEMENTS = [
    Movement("charge", "", 500, "eur"),
    Movement("refund", "op-1", 500, "eur"),
    Movement("intent", "op-2", 700, "eur"),
    Movement("intent", "op-2", 700, "eur"),
    Movement("charge", "op-2", 700, "eur"),
    Movement("intent", "op-3", 700, "eur"),
    Movement("cancel", "op-3", 700, "eur"),
]


def test_a_sound_count() -> None:
    assert count_operations(3, entries=ENTRIES, movements=MOVEMENTS, declined=1) == OperationSums(
        operations=3, effects=2, declined=1, were_unknown=2
    )


@pytest.mark.parametrize(
    ("kind", "told", "entries", "movements"),
    [
        ("lost", "1 operations that were asked for are not in the table", [REFUND, DECLINED], MOVEMENTS[:2]),
        ("lost", "op-1 (give_back) is said to have succeeded, and nothing happened", ENTRIES, MOVEMENTS[2:]),
        ("doubled", "2 effects of operation op-1", ENTRIES, [*MOVEMENTS, MOVEMENTS[1]]),
        ("wrong", "4 operations, where 3 were asked for", [*ENTRIES, replace(DECLINED, id="op-4")], MOVEMENTS),
        ("wrong", "op-1 (give_back) is review", [replace(REFUND, state="review"), CHARGE, DECLINED], MOVEMENTS),
        (
            "wrong",
            "op-3 (charge_order) is said to have failed, and it happened",
            ENTRIES,
            [*MOVEMENTS, Movement("charge", "op-3", 700, "eur")],
        ),
        ("wrong", "not in the table: op-9", ENTRIES, [*MOVEMENTS, Movement("refund", "op-9", 1, "eur")]),
        ("wrong", "2 operations have failed, where 1", [REFUND, replace(CHARGE, state="failed"), DECLINED], MOVEMENTS),
    ],
)
def test_a_planted_fault_is_named(
    kind: str, told: str, entries: list[OperationEntry], movements: list[Movement]
) -> None:
    found = count_operations(3, entries=entries, movements=movements, declined=1)
    assert told in " | ".join(getattr(found, kind))
