"""The webhook itself: one raw ASGI route, from the request to its answer.

Rule: the order of checks is by cost, and nothing is parsed before the signature is proven.  200 is said only after the
broker's delivery report.  After a valid signature content is never refused, its size excepted: a 4xx would mean three
days of repeats and then loss, so odd content is published and the processor quarantines it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog

from onceflow_producer.body import BODY_IS_HERE, BodyBudget, HungUp, read_body
from onceflow_producer.endpoint_secrets import EndpointSecret
from onceflow_producer.failpoint import hit
from onceflow_producer.metrics import BridgeMetrics
from onceflow_producer.publisher import Acknowledged, NotPublished, Publisher
from onceflow_producer.rate import InvalidRequestRate
from onceflow_producer.refusal import COUNTS_AS_INVALID, REFUSAL_ANSWERS, Answer, Refusal, json_answer
from onceflow_producer.refusal_log import RefusalLog
from onceflow_producer.request_head import RequestHead, read_head
from onceflow_producer.signature import SignatureHeader, Verified, parse_header, verify
from onceflow_producer.signing_key import signing_key
from onceflow_producer.trace import traceparent_for
from onceflow_schemas.attestation import AttestationKey
from onceflow_schemas.envelope import read_envelope
from onceflow_schemas.event_record import OutgoingRecord, build_event

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

WEBHOOK_PATH = "/webhooks/stripe"

_log = structlog.get_logger("onceflow.bridge")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """What a webhook needs to know; sizes in bytes, times in seconds.

    ``tolerance_seconds`` is how far a signed time may lie on either side of this host's clock.
    ``read_deadline_seconds`` and ``answer_deadline_seconds`` both count from the end of the request's headers.
    """

    secrets: tuple[EndpointSecret, ...]
    tolerance_seconds: int
    body_bytes_max: int
    read_deadline_seconds: float
    answer_deadline_seconds: float
    default_account: str
    default_mode: str
    deployment: str
    topic: str
    attestation_keys: tuple[AttestationKey, ...]


class Webhook:
    """Answers ``POST /webhooks/stripe`` and ``POST /webhooks/stripe/<endpoint id>``."""

    def __init__(
        self,
        settings: WebhookSettings,
        *,
        publisher: Publisher,
        budget: BodyBudget,
        rate: InvalidRequestRate,
        metrics: BridgeMetrics,
    ) -> None:
        self._settings = settings
        self._publisher = publisher
        self._budget = budget
        self._rate = rate
        self._metrics = metrics
        self._refusals = RefusalLog()
        self._loop = asyncio.get_running_loop()
        self._routes = secrets_by_path(settings.secrets)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request whose path begins with ``WEBHOOK_PATH``."""
        try:
            result = await self._take(scope, receive)
        except Exception as bug:  # noqa: BLE001 - a bug must cost one request, and must not print what is in its text
            self._log_bug(bug)
            result = Refusal("internal_error", "a bug")
        if isinstance(result, HungUp):
            self._metrics.disconnects.inc()
            return
        answer = self._accept(result) if isinstance(result, Acknowledged) else self._refuse(result, scope)
        await send(answer.start)
        hit("bridge.in_answer")
        await send(answer.body)

    async def _take(self, scope: Scope, receive: Receive) -> Acknowledged | Refusal | HungUp:
        started = self._loop.time()
        settings = self._settings
        secrets = self._routes.get(scope["path"])
        if secrets is None:
            return Refusal("unknown_endpoint", "no secret belongs to this path")
        if scope["method"] != "POST":
            return Refusal("method_not_allowed", "only POST is taken")
        head = read_head(scope["headers"], body_bytes_max=settings.body_bytes_max)
        if isinstance(head, Refusal):
            return head
        signature = parse_header(head.signatures)
        if isinstance(signature, Refusal):
            return signature
        body = await read_body(
            receive,
            declared_bytes=head.declared_bytes,
            bytes_max=settings.body_bytes_max,
            deadline=started + settings.read_deadline_seconds,
            budget=self._budget,
            is_here=BODY_IS_HERE in scope.get("state", ()),
        )
        if not isinstance(body, bytes):
            return body
        try:
            return await self._publish_verified(body, signature, head=head, secrets=secrets, started=started)
        finally:
            self._budget.give_back(len(body))

    async def _publish_verified(
        self,
        body: bytes,
        signature: SignatureHeader,
        *,
        head: RequestHead,
        secrets: Sequence[EndpointSecret],
        started: float,
    ) -> Acknowledged | Refusal:
        settings = self._settings
        now = time.time()
        verified = verify(signature, body, secrets=secrets, now=now, tolerance_seconds=settings.tolerance_seconds)
        if isinstance(verified, Refusal):
            return verified
        record = self._record(body, verified, head=head, received_at=datetime.fromtimestamp(now, UTC))
        if record is None:
            return Refusal("attestation_key_missing", "no attestation key may sign at this time")
        pending = self._publisher.publish(record, deadline=started + settings.answer_deadline_seconds)
        published = pending if isinstance(pending, NotPublished) else await pending
        if isinstance(published, NotPublished):
            return Refusal(published.code, published.detail)
        return published

    def _record(
        self, body: bytes, verified: Verified, *, head: RequestHead, received_at: datetime
    ) -> OutgoingRecord | None:
        settings = self._settings
        key = signing_key(settings.attestation_keys, received_at)
        if key is None:
            return None
        return build_event(
            body,
            envelope=read_envelope(body),
            default_account=settings.default_account,
            default_mode=settings.default_mode,
            received_at=received_at,
            endpoint=verified.endpoint,
            source="webhook",
            deployment=settings.deployment,
            topic=settings.topic,
            key=key,
            traceparent=traceparent_for(head.traceparents),
        )

    def _accept(self, acknowledged: Acknowledged) -> Answer:
        self._metrics.requests[200].inc()
        document = b'{"received":true,"partition":%d,"offset":%d}' % (acknowledged.partition, acknowledged.offset)
        return json_answer(200, document)

    def _refuse(self, refusal: Refusal, scope: Scope) -> Answer:
        peer = scope.get("client")
        client = peer[0] if peer else ""
        now = self._loop.time()
        self._metrics.refused[refusal.code].inc()
        if refusal.code == "body_too_large":
            self._metrics.oversize_body.inc()
        elif refusal.code == "record_too_large":
            self._metrics.oversize_record.inc()
        if refusal.code in COUNTS_AS_INVALID and not self._rate.take(client, now=now):
            self._metrics.refused["too_many_invalid"].inc()
            answer = REFUSAL_ANSWERS["too_many_invalid"]
        else:
            answer = REFUSAL_ANSWERS[refusal.code]
            self._refusals.write(refusal, status=answer.status, client=client, now=now)
        self._metrics.requests[answer.status].inc()
        return answer

    @staticmethod
    def _log_bug(bug: Exception) -> None:
        """Say where it happened; the text of an exception may hold a part of the body."""
        frames = []
        trace = bug.__traceback__
        while trace is not None:
            frames.append(f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}")
            trace = trace.tb_next
        _log.error("webhook_failed", error=type(bug).__name__, frames=frames)


def secrets_by_path(secrets: Sequence[EndpointSecret]) -> Mapping[str, tuple[EndpointSecret, ...]]:
    """Return which secrets may sign at which path: all of them at the main one, and its own at each endpoint's."""
    routes: dict[str, tuple[EndpointSecret, ...]] = {WEBHOOK_PATH: tuple(secrets)}
    for secret in secrets:
        path = f"{WEBHOOK_PATH}/{secret.id}"
        routes[path] = (*routes.get(path, ()), secret)
    return routes
