"""What was read, counted outside of every answer; and the date that an answer carries."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

import pytest
import stripe

from onceflow_simulator import Simulator
from tests.simulator.asking import get
from tests.simulator.conftest import Connect


def test_reads_are_counted_per_path_and_account(
    simulator: Simulator, client: stripe.StripeClient, connect: Connect
) -> None:
    customer = client.v1.customers.create({}).id
    path = f"/v1/customers/{customer}"
    assert simulator.reads(path) == 0
    client.v1.customers.retrieve(customer)
    client.v1.customers.retrieve(customer, {"expand": ["default_source"]})
    with pytest.raises(stripe.InvalidRequestError):
        connect(account="acct_C1").v1.customers.retrieve(customer)
    platform = simulator.state()["platform"]
    assert simulator.reads(path) == 3
    assert (simulator.reads(path, account=platform), simulator.reads(path, account="acct_C1")) == (2, 1)
    simulator.reset()
    assert simulator.reads(path) == 0


def test_a_refused_read_is_counted(simulator: Simulator, client: stripe.StripeClient) -> None:
    customer = client.v1.customers.create({}).id
    simulator.faults.add("rate_limited", match={"method": "GET"}, times=1)
    with pytest.raises(stripe.RateLimitError):
        client.v1.customers.retrieve(customer)
    assert simulator.reads(f"/v1/customers/{customer}") == 1


def test_an_answer_is_dated_by_the_simulators_clock(simulator: Simulator) -> None:
    simulator.stop_clock(at=1_700_000_000)
    answer = get(simulator.url, "/v1/customers", api_key=simulator.api_key)
    assert parsedate_to_datetime(answer.headers["Date"]).timestamp() == 1_700_000_000
    assert answer.headers["Date"].endswith("GMT")
