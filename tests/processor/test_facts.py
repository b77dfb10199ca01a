"""What a process believes about facts: a wrong "free" is cheap, a wrong "taken" never happens."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from onceflow_processor import facts as facts_module
from onceflow_processor.facts import Facts
from tests.schemas.stripe_bodies import CASES

A, B, C = ("paid", "in_1"), ("paid", "in_2"), ("sent", "in_1")


def test_a_fact_is_claimed_once_in_a_batch() -> None:
    facts = Facts()
    assert facts.claim(A, "event:1")
    assert not facts.claim(A, "event:1")
    assert not facts.claim(A, "event:2")
    assert facts.claim(B, "event:2")
    assert facts.claimed() == {A: "event:1", B: "event:2"}


def test_claims_are_written_in_the_order_of_their_keys() -> None:
    """So two batches that claim the same facts wait for each other instead of locking crosswise."""
    facts = Facts()
    for key in (C, B, A):
        facts.claim(key, "c")
    assert list(facts.claimed()) == [A, B, C]


def test_what_is_rolled_back_is_free_again() -> None:
    facts = Facts()
    facts.claim(A, "c")
    facts.claim(B, "c")
    facts.give_back([A, C])
    assert facts.claim(A, "d")
    facts.roll_back()
    assert facts.claimed() == {}
    assert facts.claim(B, "d")


def test_what_is_committed_stays_taken_whatever_rolls_back_later() -> None:
    facts = Facts()
    facts.claim(A, "c")
    facts.commit()
    assert facts.claimed() == {}
    assert not facts.claim(A, "d")
    facts.roll_back()
    facts.give_back([A])
    assert not facts.claim(A, "d")


def test_what_the_database_says_is_taken() -> None:
    facts = Facts()
    facts.remember([A])
    assert not facts.claim(A, "c")
    assert facts.claim(B, "c")


def test_a_new_connection_begins_with_nothing() -> None:
    """The database behind it may have been put back to a time before the fact."""
    facts = Facts()
    facts.remember([A])
    facts.claim(B, "c")
    facts.forget_all()
    assert facts.claim(A, "d")
    assert facts.claim(B, "d")


def test_memory_is_bounded_and_forgets_the_oldest() -> None:
    facts = Facts()
    facts.remember(("n", str(number)) for number in range(facts_module.REMEMBERED_MAX + 2))
    assert facts.claim(("n", "0"), "c")
    assert facts.claim(("n", "1"), "c")
    assert not facts.claim(("n", "2"), "c")


KEYS = st.sampled_from([A, B, C])


class FactsBesideDatabase(RuleBasedStateMachine):
    """Facts beside a set that plays the database: "taken" is said only of what the database or the batch holds."""

    def __init__(self) -> None:
        super().__init__()
        self.facts = Facts()
        self.database: set[tuple[str, str]] = set()
        self.batch: set[tuple[str, str]] = set()

    @rule(key=KEYS)
    def claim(self, key: tuple[str, str]) -> None:
        if self.facts.claim(key, "c"):
            assert key not in self.batch
            self.batch.add(key)
        else:
            assert key in self.batch | self.database

    @rule(key=KEYS)
    def another_process_takes(self, key: tuple[str, str]) -> None:
        self.database.add(key)

    @rule(keys=st.sets(KEYS))
    def give_back(self, keys: set[tuple[str, str]]) -> None:
        self.facts.give_back(keys & self.batch)
        self.batch -= keys

    @rule()
    def tail(self) -> None:
        """A shortage in the tail reruns the batch with the truth looked up."""
        assert set(self.facts.claimed()) == self.batch
        if self.batch & self.database:
            wanted = self.batch
            self.facts.roll_back()
            self.facts.remember(wanted & self.database)
        else:
            self.database |= self.batch
            self.facts.commit()
        self.batch = set()

    @rule()
    def connect_to_a_database_that_was_put_back(self) -> None:
        self.facts.forget_all()
        self.database.clear()
        self.batch = set()


TestFactsBesideDatabase = FactsBesideDatabase.TestCase
TestFactsBesideDatabase.settings = CASES
