"""Several accounts behind one gateway: each is called with the key that is its own."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from onceflow_processor.operations.senders.stripe_gateway import StripeAccess, StripeGateway
from tests.processor.operations.senders import operations
from tests.processor.operations.senders.operations import refund_object
from tests.processor.operations.senders.scripted import answer, scripted


def test_each_account_is_called_with_its_own_key() -> None:
    accesses = (
        StripeAccess(account="acct_1", mode="test", api_key="rk_test_one"),
        StripeAccess(account="acct_2", mode="test", api_key="rk_test_two"),
        StripeAccess(account="acct_3", mode="test", api_key="rk_test_one", connected=True),
    )

    async def scenario() -> list[tuple[str, str | None]]:
        async with scripted(*[answer(200, refund_object())] * 3) as server:
            sender = StripeGateway(accesses, api_base=server.url, connect_seconds=2, total_seconds=5)
            step, operation = operations.refund()
            for account in ("acct_2", "acct_3", "acct_1"):
                await sender.send(step, replace(operation, account=account))
            await sender.close()
            return [(one.headers["authorization"], one.headers.get("stripe-account")) for one in server.requests]

    assert asyncio.run(scenario()) == [
        ("Bearer rk_test_two", None),
        ("Bearer rk_test_one", "acct_3"),
        ("Bearer rk_test_one", None),
    ]
