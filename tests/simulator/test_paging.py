"""Pages of a list, by hand."""

from __future__ import annotations

import pytest

from onceflow_simulator.errors import StripeError
from onceflow_simulator.paging import cursor_of, pick


def test_a_cursor_and_its_name() -> None:
    assert cursor_of({}) == (None, "starting_after")
    assert cursor_of({"starting_after": "a", "ending_before": ""}) == ("a", "starting_after")
    assert cursor_of({"ending_before": "b"}) == ("b", "ending_before")
    with pytest.raises(StripeError):
        cursor_of({"starting_after": "a", "ending_before": "b"})


@pytest.mark.parametrize(
    ("count", "page", "has_more"), [(0, [], False), (4, [0, 2], False), (5, [0, 2], True), (99, [0, 2], True)]
)
def test_a_page_knows_whether_there_is_more(count: int, page: list[int], *, has_more: bool) -> None:
    def even(number: int) -> bool:
        return number % 2 == 0

    assert pick(range(count), even, limit=2, reverse=False) == (page, has_more)
    assert pick(range(count), even, limit=2, reverse=True) == (page[::-1], has_more)
