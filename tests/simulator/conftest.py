"""One simulator for the tests here, begun anew for each test, and Stripe's own library pointed at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import stripe

from onceflow_simulator import Simulator

READ_TIMEOUT_SECONDS = 5.0
CONNECT_TIMEOUT_SECONDS = 5.0

Connect = Callable[..., stripe.StripeClient]


@pytest.fixture(scope="package")
def simulator_process() -> Iterator[Simulator]:
    with Simulator(seed=7) as running:
        yield running


@pytest.fixture
def simulator(simulator_process: Simulator) -> Iterator[Simulator]:
    simulator_process.reset()
    yield simulator_process
    assert simulator_process.state()["bugs"] == []


@pytest.fixture
def connect(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    """Makes clients: with another key, for a connected account, with a shorter time-out."""
    monkeypatch.setattr(stripe, "enable_telemetry", False)
    opened: list[stripe.RequestsClient] = []

    def make(
        api_key: str | None = None, *, account: str | None = None, timeout_seconds: float = READ_TIMEOUT_SECONDS
    ) -> stripe.StripeClient:
        opened.append(stripe.RequestsClient(timeout=(CONNECT_TIMEOUT_SECONDS, timeout_seconds)))
        return stripe.StripeClient(
            api_key or simulator.api_key,
            stripe_account=account,
            base_addresses={"api": simulator.url},
            http_client=opened[-1],
            max_network_retries=0,
        )

    yield make
    for one in opened:
        one.close()  # type: ignore[no-untyped-call]  # as the library ships it


@pytest.fixture
def client(connect: Connect) -> stripe.StripeClient:
    return connect()
