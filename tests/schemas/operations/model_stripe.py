"""A small Stripe for tests of decisions: keys that are forgotten after a day, intents, refunds, and what really happened.

Rule: it knows nothing of the product but the calls' form; its books say how often money moved.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

KEY_LIFE = timedelta(hours=24)

Behaviour = Literal["pays", "declines", "processes", "asks", "invalid"]


@dataclass(frozen=True)
class Reply:
    """An HTTP answer: 200 with an object, 402 with the intent's id, 400."""

    status: int
    body: dict[str, Any]
    replayed: bool = False


@dataclass
class ModelStripe:
    """``objects`` by id; ``effects`` are the ids of what moved money, once for each time."""

    behaviour: Behaviour
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    keys: dict[str, tuple[datetime, Reply]] = field(default_factory=dict)
    effects: list[str] = field(default_factory=list)
    expired_keys_used: int = 0

    def post(self, path: str, params: dict[str, Any], *, key: str, now: datetime) -> Reply:
        """Execute once per living key; a refusal for the form of a request is not stored."""
        stored = self.keys.get(key)
        if stored is not None and now - stored[0] < KEY_LIFE:
            return Reply(stored[1].status, copy.deepcopy(stored[1].body), replayed=True)
        self.expired_keys_used += stored is not None
        if self.behaviour == "invalid":
            return Reply(400, {"code": "parameter_invalid"})
        reply = self._execute(path, params, now)
        self.keys[key] = (now, reply)
        return Reply(reply.status, copy.deepcopy(reply.body))

    def list(self, kind: str) -> list[dict[str, Any]]:
        """Every object of a kind, newest first."""
        return [copy.deepcopy(each) for each in reversed(self.objects.values()) if each["object"] == kind]

    def decide(self, *, good: bool) -> None:
        """Banks and customers decide what waits for them."""
        for each in self.objects.values():
            if each["status"] in ("processing", "requires_action") and each["object"] == "payment_intent":
                self._paid(each) if good else self._declined(each)
            elif each["status"] == "pending":
                each["status"] = "succeeded" if good else "failed"

    def give_back(self) -> None:
        """The bank returns a refund."""
        for each in self.objects.values():
            if each["object"] == "refund" and each["status"] == "succeeded":
                each["status"] = "failed"

    def _execute(self, path: str, params: dict[str, Any], now: datetime) -> Reply:
        parts = path.split("/")
        if path == "/v1/payment_intents":
            return Reply(200, self._made("pi", "payment_intent", "requires_payment_method", params, now))
        if path == "/v1/refunds":
            status = "pending" if self.behaviour == "processes" else "succeeded"
            made = self._made("re", "refund", status, params, now)
            self.effects.append(made["id"])
            return Reply(200, made)
        intent = self.objects[parts[3]]
        return self._confirm(intent) if parts[4] == "confirm" else self._cancel(intent)

    def _made(self, prefix: str, kind: str, status: str, params: dict[str, Any], now: datetime) -> dict[str, Any]:
        made = {
            "id": f"{prefix}_{len(self.objects) + 1}",
            "object": kind,
            "status": status,
            "amount_received": 0,
            "created": int(now.timestamp()),
            "last_payment_error": None,
            "currency": "usd",
            **params,
        }
        self.objects[made["id"]] = made
        return made

    def _confirm(self, intent: dict[str, Any]) -> Reply:
        if intent["status"] not in ("requires_payment_method", "requires_confirmation"):
            return Reply(400, {"code": "payment_intent_unexpected_state"})
        if self.behaviour == "declines":
            self._declined(intent)
            return Reply(402, {"code": "card_declined", "intent": intent["id"]})
        if self.behaviour in ("processes", "asks"):
            intent["status"] = "processing" if self.behaviour == "processes" else "requires_action"
        else:
            self._paid(intent)
        return Reply(200, intent)

    def _cancel(self, intent: dict[str, Any]) -> Reply:
        if not intent["status"].startswith("requires_"):
            return Reply(400, {"code": "payment_intent_unexpected_state"})
        intent["status"] = "canceled"
        return Reply(200, intent)

    def _paid(self, intent: dict[str, Any]) -> None:
        intent.update(status="succeeded", amount_received=intent["amount"], last_payment_error=None)
        self.effects.append(intent["id"])

    def _declined(self, intent: dict[str, Any]) -> None:
        intent.update(status="requires_payment_method", last_payment_error={"code": "card_declined"})
