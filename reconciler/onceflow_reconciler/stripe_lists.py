"""Lists of Stripe, page by page, slower than live traffic.

Rule: only the configured host is ever asked; neither key nor body reaches a log; an answer that is none of 200 changes nothing.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import stripe

from onceflow_processor.operations.senders.connection import Answer
from onceflow_processor.operations.senders.exchange import Exchange, NoAnswer, retry_after_seconds
from onceflow_processor.operations.senders.stripe_gateway import StripeAccess
from onceflow_reconciler.list_page import Listed, Page, Unbelievable, read_page
from onceflow_reconciler.slices import Slice
from onceflow_schemas.failure import Unavailable
from onceflow_schemas.strict_json import read_strictly

PAGE_ITEMS: Final = 100
PAGES_MAX: Final = 1_000
"""Pages of one stretch; a longer one is cut."""
TRIES_MAX: Final = 6
RETRY_SECONDS_MAX: Final = 30.0
RETRY_SECONDS: Final = 0.5
CATCH_UP_SECONDS: Final = 1.0
TICK_SECONDS: Final = 0.5
"""So often who waits for an answer, or for his turn, says that he is still there."""

_OK = 200
_KEY_REFUSED = 401
_FORBIDDEN = 403
_MISSING = 404
_TRY_AGAIN = frozenset({408, 409, 425, 429})
_PERMISSION = re.compile(r"\brak_[a-z0-9_]{1,60}\b")


class StripeList(NamedTuple):
    """A list: its path, the kind of its objects, and the permission that a restricted key needs for it."""

    path: str
    kind: str
    permission: str


EVENTS: Final = StripeList("/v1/events", "event", "rak_event_read")
PAYMENT_INTENTS: Final = StripeList("/v1/payment_intents", "payment_intent", "rak_payment_intent_read")
WEBHOOK_ENDPOINTS: Final = StripeList("/v1/webhook_endpoints", "webhook_endpoint", "rak_webhook_read")
REFUNDS: Final = StripeList("/v1/refunds", "refund", "rak_charge_read")


@dataclass(frozen=True, slots=True)
class NotReadable(Exception):
    """An account cannot be read; ``permission`` is what a restricted key lacks, where that is the reason."""

    account: str
    status: int | None
    detail: str
    permission: str = ""

    def __str__(self) -> str:
        return f"{self.account}: {self.detail}"

    @property
    def is_refused(self) -> bool:
        """Whether Stripe has answered, and shows us nothing: a later try would not help."""
        return self.status in (_KEY_REFUSED, _FORBIDDEN, _MISSING)


def not_readable(error: NotReadable) -> Unavailable:
    """Return the failure of a proof for which Stripe cannot be read."""
    permission = f" Give the key the permission {error.permission}." if error.permission else ""
    hint = f"Look at the key in Stripe's dashboard.{permission}"
    return Unavailable("stripe_not_readable", f"Stripe's lists: {error}", hint)


class TooLarge(Exception):
    """An answer has more bytes than are read: asked again, it would have them again."""


class TooManyPages(Exception):
    """A stretch has more pages than are read in one go."""


@dataclass(frozen=True, slots=True)
class NotBelieved(Exception):
    """A list cannot be believed, and why."""

    why: Unbelievable


class StripeLists:
    """Reads lists with each account's own key, or with the platform's for a connected account.

    Args:
        accesses: one for each account.
        api_base: ``https://api.stripe.com``, or a simulator's address.
        api_version: that answers are rendered in; events keep their own.
        requests_per_second: of each account, below its limit.
        connect_seconds, total_seconds: as in ``Exchange``.
        wait: sleeps so many seconds, less when the process is asked to stop.
        tick: called at each request, and again and again while one waits; what it raises ends the reading.
    """

    def __init__(
        self,
        accesses: Iterable[StripeAccess],
        *,
        api_base: str,
        api_version: str,
        requests_per_second: float,
        connect_seconds: float,
        total_seconds: float,
        wait: Callable[[float], object],
        tick: Callable[[], object] = lambda: None,
    ) -> None:
        self._accesses = {access.account: access for access in accesses}
        self._base = api_base.rstrip("/")
        self._api_version = api_version
        self._pause_seconds = 1 / requests_per_second
        self._wait = wait
        self._tick = tick
        self._next_at: dict[str, float] = {}
        self._ahead_seconds: float | None = None
        self._runner = asyncio.Runner()
        self._exchange = Exchange(
            connect_seconds=connect_seconds, total_seconds=total_seconds, authorities=stripe.ca_bundle_path
        )
        self.requests: dict[str, int] = {}

    @property
    def accounts(self) -> tuple[str, ...]:
        """The accounts that can be read, the own one first."""
        return tuple(self._accesses)

    def now(self, account: str) -> int:
        """Return what time it is at Stripe, in unix seconds, as its last answer had it; our own clock where none did.

        Raises:
            NotReadable: see ``pages``.
        """
        if self._ahead_seconds is None:
            try:
                self.get(account, EVENTS.path, {"limit": 1}, permission=EVENTS.permission)
            except NotReadable:
                # Who refuses says what time it is as well.
                if self._ahead_seconds is None:
                    raise
        return int(time.time() + (self._ahead_seconds or 0.0))

    def pages(self, account: str, of: StripeList, within: Slice) -> Iterator[Page]:
        """Yield the pages of a stretch of a list, newest first.

        Raises:
            NotReadable: the account's key is refused, or Stripe does not answer.
            NotBelieved: the list cannot be believed.
            TooManyPages: cut the stretch.
        """
        seen: set[str] = set()
        livemode = self._accesses[account].mode == "live"
        after: dict[str, str] = {}
        limit = PAGE_ITEMS
        for _ in range(PAGES_MAX):
            # Not only what was not delivered: an event whose delivery was acknowledged may have been lost by us.
            asked = {"limit": limit, "created[gte]": within.since, "created[lt]": within.until, **after}
            try:
                body = self._ask(account, of.path, asked, permission=of.permission)
            except TooLarge as error:
                if limit == 1:
                    raise NotReadable(account, None, str(error)) from error
                limit //= 2
                continue
            page = read_page(body, kind=of.kind, within=within, seen=seen, livemode=livemode)
            if isinstance(page, Unbelievable):
                raise NotBelieved(page)
            yield page
            if not page.has_more:
                return
            after = {"starting_after": page.items[-1].id}
        raise TooManyPages

    def event(self, account: str, event_id: str) -> Listed:
        """Return one event.

        Raises:
            NotReadable: Stripe does not show it (any more).
            NotBelieved: the answer is no event of this id.
        """
        got = self.get(account, f"{EVENTS.path}/{quote(event_id, safe='')}", {}, permission=EVENTS.permission)
        body = read_strictly(got).value
        if not isinstance(body, dict) or body.get("id") != event_id or not isinstance(body.get("created"), int):
            raise NotBelieved(Unbelievable("unreadable", f"the answer is not {event_id}"))
        return Listed(event_id, body["created"], body)

    def one(self, account: str, of: StripeList, object_id: str) -> Listed | None:
        """Return one object as it is now; None when Stripe does not have it.

        Raises:
            NotReadable: see ``pages``.
            NotBelieved: the answer is another object.
        """
        try:
            got = self.get(account, f"{of.path}/{quote(object_id, safe='')}", {}, permission=of.permission)
        except NotReadable as error:
            if error.status == _MISSING:
                return None
            raise
        body = read_strictly(got).value
        if not isinstance(body, dict) or body.get("id") != object_id or not isinstance(body.get("created"), int):
            raise NotBelieved(Unbelievable("unreadable", f"the answer is not {object_id}"))
        return Listed(object_id, body["created"], body)

    def all_of(self, account: str, of: StripeList) -> list[Mapping[str, Any]]:
        """Return the first page of a short list; Stripe lets an account have 16 webhook endpoints.

        Raises:
            NotReadable, NotBelieved: see ``pages``.
        """
        got = self.get(account, of.path, {"limit": PAGE_ITEMS}, permission=of.permission)
        told = read_strictly(got).value
        entries = told.get("data") if isinstance(told, dict) else None
        if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
            raise NotBelieved(Unbelievable("unreadable", "the answer is no list of Stripe"))
        return entries

    def get(self, account: str, path: str, asked: Mapping[str, object], *, permission: str) -> bytes:
        """Ask until there is an answer, bounded.

        Raises:
            NotReadable: see ``pages``.
        """
        try:
            return self._ask(account, path, asked, permission=permission)
        except TooLarge as error:
            raise NotReadable(account, None, str(error)) from error

    def _ask(self, account: str, path: str, asked: Mapping[str, object], *, permission: str) -> bytes:
        url = f"{self._base}{path}?{urlencode(asked)}"
        detail, status = "no answer", None
        for tries in range(TRIES_MAX):
            self._keep_pace(account)
            try:
                answer = self._runner.run(self._answer(url, self._headers(account)))
            except NoAnswer as error:
                if error.reason == "too_large":
                    raise TooLarge(error.detail) from error
                detail, status, pause = error.detail, None, RETRY_SECONDS * 2**tries
            else:
                stripe_at = _time_of(answer.headers)
                if stripe_at is not None:
                    self._ahead_seconds = stripe_at.timestamp() - time.time()
                if answer.status == _OK:
                    return answer.body
                if 400 <= answer.status < 500 and answer.status not in _TRY_AGAIN:  # noqa: PLR2004 - the sender's fault, by HTTP
                    raise _refusal(account, answer.status, answer.body, permission=permission)
                detail, status = f"Stripe answered {answer.status}", answer.status
                pause = retry_after_seconds(answer.headers) or RETRY_SECONDS * 2**tries
            self._rest(min(pause, RETRY_SECONDS_MAX))
        raise NotReadable(account, status, f"{detail}, {TRIES_MAX} times")

    def close(self) -> None:
        """Let go of connections."""
        self._runner.run(self._exchange.close())
        self._runner.close()

    async def _answer(self, url: str, headers: Mapping[str, str]) -> Answer:
        asking = asyncio.ensure_future(self._exchange.request("GET", url, headers=headers))
        try:
            while not asking.done():
                self._tick()
                await asyncio.wait([asking], timeout=TICK_SECONDS)
            return asking.result()
        finally:
            asking.cancel()

    def _rest(self, seconds: float) -> None:
        """Sleep, in steps: who is asked to stop sleeps less in each of them."""
        for _ in range(int(seconds // TICK_SECONDS)):
            self._wait(TICK_SECONDS)
            self._tick()
        self._wait(seconds % TICK_SECONDS)

    def _keep_pace(self, account: str) -> None:
        # Who was kept from asking may catch up a little, so that the rate is one over some seconds.
        now = time.monotonic()
        due_at = max(self._next_at.get(account, now), now - CATCH_UP_SECONDS)
        begin_at = max(now, due_at)
        self._next_at[account] = due_at + self._pause_seconds
        if begin_at > now:
            self._rest(begin_at - now)
        self.requests[account] = self.requests.get(account, 0) + 1

    def _headers(self, account: str) -> dict[str, str]:
        access = self._accesses[account]
        headers = {
            "Authorization": f"Bearer {access.api_key}",
            "Stripe-Version": self._api_version,
            "User-Agent": "onceflow",
        }
        if access.connected:
            headers["Stripe-Account"] = account
        return headers


def _refusal(account: str, status: int, body: bytes, *, permission: str) -> NotReadable:
    """Tell a key that is refused from one that lacks a permission, and both from an account that is not there any more."""
    told = read_strictly(body).value
    error = told.get("error") if isinstance(told, dict) else None
    said = error if isinstance(error, dict) else {}
    if status == _KEY_REFUSED:
        return NotReadable(account, status, "the key is refused")
    if said.get("code") == "account_invalid":
        return NotReadable(account, status, "the account is gone, or has been disconnected from the platform")
    if status == _FORBIDDEN:
        named = _PERMISSION.search(str(said.get("message", "")))
        lacks = named.group() if named else permission
        return NotReadable(account, status, f"the key lacks {lacks}", lacks)
    return NotReadable(account, status, f"Stripe refused with {status}")


def _time_of(headers: Mapping[str, str]) -> datetime | None:
    try:
        return parsedate_to_datetime(headers.get("Date", ""))
    except ValueError:
        return None
