"""G2: the reader of objects is killed at each place of a read that a parked event waits for.

Rule: a read that nobody ends begins again under a new fence, what it finds is written once, and Stripe is asked no more often
than somebody had it in hand.
"""

from __future__ import annotations

import json
import signal
from random import Random
from typing import Any

import psycopg

from onceflow_schemas.object_reads import ReadKind, ReadNeed
from onceflow_schemas.sql import queries
from tests.chaos.operation_fault import operation_fault
from tests.chaos.operations_world import OperationsWorld
from tests.chaos.points import POINTS
from tests.checker.waiting import wait_for

ACCOUNT = "acct_embedded"
READ_SECONDS = 40.0
LEASES = 2
REQUESTS = {"before_lease_commit": 1, "before_request": 1, "after_answer": 2, "before_commit": 2}
"""How often Stripe is asked when the first reader dies there."""

FENCES = {"before_lease_commit": 1, "before_request": LEASES, "after_answer": LEASES, "before_commit": LEASES}


def _ask(world: OperationsWorld, customer: str) -> None:
    """Ask as the tail of a batch does."""
    need = ReadNeed(ACCOUNT, "test", ReadKind.OBJECT, customer, f"/v1/customers/{customer}", None)
    given = {
        "accounts": [need.account],
        "modes": [need.mode],
        "kinds": [need.kind.value],
        "object_ids": [need.object_id],
        "paths": [need.path],
        "api_versions": [need.api_version],
    }
    with psycopg.connect(world.database_url) as connection:
        connection.execute(queries("object_reads")["ask"], given)


def _row(world: OperationsWorld, customer: str) -> tuple[Any, ...]:
    [row] = world.rows("SELECT state, fence, body FROM onceflow.object_read WHERE object_id = %s", customer)
    return row


def _register() -> None:
    for place in POINTS["reader"]:
        point = f"reader.{place}"

        def act(world: OperationsWorld, dice: Random, place: str = place, point: str = point) -> str:
            name = f"customer {dice.randrange(10**9)}"
            customer = world.client().v1.customers.create({"name": name}).id
            reader = world.operator
            reader.arm(point, "kill9")
            _ask(world, customer)
            firing = reader.wait_fired()
            assert reader.wait_ended() == -signal.SIGKILL
            assert _row(world, customer)[0] == "asked", "a read that was not committed is taken for done"
            reader.disarm()
            world.rows(
                "UPDATE onceflow.object_read SET lease_until = clock_timestamp(), due_at = clock_timestamp()"
                " WHERE lease_owner IS NOT NULL AND state = 'asked'"
            )
            world.restart("operator")
            wait_for(lambda: _row(world, customer)[0] == "read", limit_seconds=READ_SECONDS, what="it is read")
            _, fence, body = _row(world, customer)
            asked = world.simulator.reads(f"/v1/customers/{customer}")
            assert json.loads(bytes(body))["name"] == name
            assert (fence, asked) == (FENCES[place], REQUESTS[place]), (fence, asked)
            return f"{firing}; read under fence {fence} with {asked} requests"

        operation_fault(f"G2/read_{place}", f"the reader is killed at {place}", points=(point,))(act)


_register()
