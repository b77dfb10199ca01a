"""GET requests to Stripe, over the exchange that operations use.

Rule: only the configured host is ever asked, no redirect is followed, and neither key nor body reaches a log.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import stripe

from onceflow_processor.operations.senders.exchange import Exchange, NoAnswer, retry_after_seconds
from onceflow_processor.operations.senders.stripe_gateway import StripeAccess
from onceflow_schemas.object_reads import Answered, ReadNeed

DATE_SLACK_SECONDS = 1.0
"""The header ``Date`` has whole seconds."""


@dataclass(frozen=True, slots=True)
class Got:
    """An answer, and Stripe's clock: no later than the moment at which the request began; None when it did not say."""

    answered: Answered
    stripe_at: datetime | None = None


class StripeReads:
    """Reads with each account's own key, or with the platform's for a connected account.

    Args:
        accesses: one for each account that may be read.
        api_base: ``https://api.stripe.com``, or a simulator's address.
        api_version: of reads whose event has none.
        connect_seconds, total_seconds: as in ``Exchange``.
    """

    def __init__(
        self,
        accesses: Iterable[StripeAccess],
        *,
        api_base: str,
        api_version: str,
        connect_seconds: float,
        total_seconds: float,
    ) -> None:
        self.seconds_max = total_seconds
        self._accesses = {access.account: access for access in accesses}
        self._base = api_base.rstrip("/")
        self._api_version = api_version
        self._exchange = Exchange(
            connect_seconds=connect_seconds, total_seconds=total_seconds, authorities=stripe.ca_bundle_path
        )

    @property
    def accounts(self) -> tuple[str, ...]:
        """The accounts that can be read."""
        return tuple(self._accesses)

    async def get(self, need: ReadNeed, path: str) -> Got:
        """Ask once; never raises for what the other side does."""
        assert path.startswith("/"), "a path that is no path could name another host"
        begun = time.monotonic()
        try:
            answer = await self._exchange.request("GET", self._base + path, headers=self._headers(need, path))
        except NoAnswer as error:
            return Got(Answered(None, silence=error.reason))
        answered = Answered(
            answer.status,
            answer.body,
            retry_after_seconds=retry_after_seconds(answer.headers),
            limit=answer.headers.get("Stripe-Rate-Limited-Reason"),
        )
        return Got(answered, _begun_at(answer.headers, seconds=time.monotonic() - begun))

    async def close(self) -> None:
        """Let go of connections."""
        await self._exchange.close()

    def _headers(self, need: ReadNeed, path: str) -> dict[str, str]:
        access = self._accesses[need.account]
        headers = {
            "Authorization": f"Bearer {access.api_key}",
            "Stripe-Version": need.api_version or self._api_version,
            "User-Agent": "onceflow",
        }
        if access.connected:
            headers["Stripe-Context" if path.startswith("/v2/") else "Stripe-Account"] = need.account
        return headers


def _begun_at(headers: Mapping[str, str], *, seconds: float) -> datetime | None:
    """Return Stripe's clock when the request began, or a little earlier."""
    try:
        dated = parsedate_to_datetime(headers.get("Date", ""))
        aware = dated if dated.tzinfo else dated.replace(tzinfo=UTC)
        return aware - timedelta(seconds=seconds + DATE_SLACK_SECONDS)
    except (ValueError, OverflowError):
        return None
