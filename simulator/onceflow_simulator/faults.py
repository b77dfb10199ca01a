"""Scripted faults: which request goes wrong, how often, and in which way.

Rule: a fault says apart what becomes of the effect (now, late, none) and what becomes of the answer; every fault that
fired stands in the journal.  With a seed the same requests go wrong in every run, in whatever order they come.
"""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Effect = Literal["now", "late", "none"]
Reply = Literal[
    "real",
    "reset",
    "truncated",
    "garbage",
    "hang",
    "canned",
    "altered",
    "repeat_page",
    "endless",
    "no_id",
    "empty_page",
]
_PLACE = re.compile(r"{[^}]*}")


class Match(BaseModel):
    """Which requests a rule is about; what is left out matches everything. Texts may hold ``*``."""

    model_config = ConfigDict(extra="forbid")

    method: str | None = None
    path: str | None = None
    account: str | None = None
    key: str | None = None
    metadata: dict[str, str] = {}


class Rule(BaseModel):
    """One rule.

    ``fault`` is a name of ``FAULTS``, whose fields may each be replaced. ``times`` counts firings (None: without end),
    ``skip`` lets the first matches pass.
    """

    model_config = ConfigDict(extra="forbid")

    fault: str
    name: str = ""
    match: Match = Match()
    times: int | None = Field(default=1, ge=1)
    skip: int = Field(default=0, ge=0)
    probability: float = Field(default=1.0, gt=0.0, le=1.0)

    effect: Effect | None = None
    reply: Reply | None = None
    stored: bool | None = None
    late_seconds: float | None = Field(default=None, ge=0.0)
    late_ms: float | None = Field(default=None, ge=0.0)
    latency_ms: float | None = Field(default=None, ge=0.0)
    answer_ms: float | None = Field(default=None, ge=0.0)
    hang_ms: float | None = Field(default=None, ge=0.0)
    status: int | None = Field(default=None, ge=200, le=599)
    body: str | None = None
    headers: dict[str, str] | None = None
    retry_after: int | None = None
    should_retry: Literal["true", "false"] | None = None
    reason: str | None = None
    set: dict[str, Any] | None = None


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one request.

    Args:
        effect: executed now, later (``late_seconds`` of the simulator's clock or ``late_ms`` of the real one), never.
        reply: what the client gets; "canned" is ``status``, ``body``, ``headers``.
        stored: whether a canned answer is what the idempotency key keeps; else it keeps the real one, if there is one.
        latency_ms: real milliseconds before anything happens.
        answer_ms: real milliseconds between execution and answer, in which a webhook overtakes it.
        hang_ms: how long a hanging connection stays open, in real milliseconds.
        set: dotted path -> value, of an altered answer.
    """

    name: str
    effect: Effect = "now"
    reply: Reply = "real"
    stored: bool = False
    late_seconds: float | None = None
    late_ms: float | None = None
    latency_ms: float = 0.0
    answer_ms: float = 0.0
    hang_ms: float = 600_000.0
    status: int = 200
    body: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    retry_after: int | None = None
    should_retry: str | None = None
    reason: str | None = None
    set: Mapping[str, Any] = field(default_factory=dict)


TITLE = "{title}"
"""Stands in a body for what a proxy calls the status."""
HTML = (
    f"<html><head><title>{TITLE}</title></head><body><center><h1>{TITLE}</h1></center><hr><center>proxy</center>"
    "</body></html>"
)

FAULTS: dict[str, Fault] = {
    one.name: one
    for one in (
        Fault("lost_request", effect="none", reply="reset"),
        Fault("lost_answer", reply="reset"),
        Fault("slow_success", effect="late", reply="hang"),
        Fault("slow"),
        Fault("server_error", effect="none", reply="canned", status=500, stored=True),
        Fault("server_error_with_effect", reply="canned", status=500, stored=True),
        Fault("server_error_repaired", effect="late", reply="canned", status=500, stored=True),
        Fault("proxy_error", effect="none", reply="canned", status=502, body=HTML),
        Fault("dependency_failed", effect="none", reply="canned", status=424),
        Fault("conflict", effect="none", reply="canned", status=409),
        Fault("rate_limited", effect="none", reply="canned", status=429, reason="global-rate"),
        Fault("lock_timeout", effect="none", reply="canned", status=429),
        Fault("unauthorized", effect="none", reply="canned", status=401),
        Fault("forbidden", effect="none", reply="canned", status=403),
        Fault("redirect", effect="none", reply="canned", status=302, body=""),
        Fault("empty_answer", reply="canned", body=""),
        Fault("error_in_success", reply="canned", body='{"error": {"type": "api_error", "message": "odd"}}'),
        Fault("altered", reply="altered"),
        Fault("repeat_page", reply="repeat_page"),
        Fault("endless_list", reply="endless"),
        Fault("item_without_id", reply="no_id"),
        Fault("empty_page", reply="empty_page"),
    )
}

OF_LISTS = frozenset({"repeat_page", "endless", "no_id", "empty_page"})
"""The replies that are a page of a list."""


def usual_method(fault: str) -> str:
    """Return the method of the requests that a person means by a fault: those that read for a fault of lists, else those that act.

    A rule without a method meets every request, and so a look-up too, which then has the fault that an effect was to have.
    """
    return "GET" if fault in FAULTS and FAULTS[fault].reply in OF_LISTS else "POST"


@dataclass(frozen=True)
class Subject:
    """The request as rules see it.

    Args:
        template: the path with names for ids, such as ``/v1/refunds/{id}``.
        metadata: of the request, over that of the object that it is about.
    """

    method: str
    path: str
    template: str
    account: str
    key: str | None
    metadata: Mapping[str, str]
    request_id: str


@dataclass
class _Active:
    id: str
    rule: Rule
    fault: Fault
    matched: int = 0
    fired: int = 0
    draws: Counter[str] = field(default_factory=Counter)


class Faults:
    """The rules in force, and the journal of what they did.

    Args:
        seed: of the draws.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._active: list[_Active] = []
        self._count = 0
        self.journal: list[dict[str, Any]] = []

    def add(self, rule: Rule) -> str:
        """Put a rule in force; its id.

        Raises:
            KeyError: there is no fault of this name.
        """
        fault = merged(rule)
        self._count += 1
        self._active.append(_Active(f"fault_{self._count}", rule, fault))
        return self._active[-1].id

    def remove(self, id: str | None = None) -> None:
        """Take a rule, or all of them, out of force; the journal stays."""
        self._active = [] if id is None else [one for one in self._active if one.id != id]

    def clear(self) -> None:
        """No rules, no journal."""
        self._active.clear()
        self.journal.clear()

    def rules(self) -> list[dict[str, Any]]:
        """The rules in force and how often each matched and fired."""
        return [
            {"id": one.id, "matched": one.matched, "fired": one.fired, **one.rule.model_dump(exclude_none=True)}
            for one in self._active
        ]

    def pick(self, subject: Subject, *, now: float) -> tuple[Fault, dict[str, Any]] | None:
        """The fault of this request and its place in the journal; the first rule that fires wins."""
        for one in self._active:
            rule = one.rule
            if (rule.times is not None and one.fired >= rule.times) or not _matches(rule.match, subject):
                continue
            one.matched += 1
            if one.matched <= rule.skip or not self._drawn(one, subject):
                continue
            one.fired += 1
            return one.fault, self._note(one, subject, now=now)
        return None

    def _drawn(self, one: _Active, subject: Subject) -> bool:
        """A draw by seed, rule, key and how often that key was drawn: the order of other requests has no say."""
        if one.rule.probability >= 1.0:
            return True
        name = subject.key or subject.path
        one.draws[name] += 1
        text = f"{self._seed}/{one.id}/{subject.method}/{name}/{one.draws[name]}"
        draw = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) / 2**64
        return draw < one.rule.probability

    def _note(self, one: _Active, subject: Subject, *, now: float) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "n": len(self.journal) + 1,
            "at": now,
            "rule": one.id,
            "name": one.rule.name,
            "fault": one.fault.name,
            "effect": one.fault.effect,
            "reply": one.fault.reply,
            "method": subject.method,
            "path": subject.path,
            "account": subject.account,
            "key": subject.key,
            "metadata": dict(subject.metadata),
            "request_id": subject.request_id,
            "object": None,
            "landed_at": None,
        }
        self.journal.append(entry)
        return entry


def merged(rule: Rule) -> Fault:
    """The named fault with the fields that the rule replaces.

    Raises:
        KeyError: there is no fault of this name.
    """
    own = rule.model_dump(exclude_none=True, exclude={"fault", "name", "match", "times", "skip", "probability"})
    return replace(FAULTS[rule.fault], **own)


def _matches(match: Match, subject: Subject) -> bool:
    return (
        _same(match.method, subject.method)
        and (match.path is None or _path_matches(match.path, subject))
        and _same(match.account, subject.account)
        and _same(match.key, subject.key or "")
        and all(_same(pattern, subject.metadata.get(name, "")) for name, pattern in match.metadata.items())
    )


def _same(pattern: str | None, text: str) -> bool:
    return pattern is None or pattern == text or fnmatch.fnmatchcase(text, pattern)


def _path_matches(pattern: str, subject: Subject) -> bool:
    if "{" in pattern:
        return _PLACE.sub("{}", pattern) == _PLACE.sub("{}", subject.template)
    return _same(pattern, subject.path)
