"""The failpoints of the product by part; a test holds this list against the sources."""

from __future__ import annotations

POINTS: dict[str, tuple[str, ...]] = {
    "bridge": ("before_produce", "after_produce", "after_ack", "in_answer"),
    "processor": (
        "after_take_over",
        "after_poll",
        "before_batch",
        "after_begin",
        "after_markers",
        "after_handler",
        "after_handlers",
        "before_outcomes",
        "before_commit",
        "after_commit",
        "before_group_commit",
    ),
    "relay": (
        "after_lease",
        "after_init_transactions",
        "after_look",
        "after_begin",
        "after_produce",
        "before_offsets",
        "before_commit",
        "after_commit",
        "after_mark",
    ),
    "operator": (
        "before_claim",
        "after_claim",
        "before_recheck",
        "before_send",
        "after_answer",
        "in_callback",
        "before_settle_commit",
        "after_settle_commit",
    ),
    "careful": ("after_try",),
    "redrive": ("after_claim", "after_lock"),
    "decisions": ("before_commit", "between_pages"),
    "dead_letters": ("before_mark",),
    "reader": ("before_lease_commit", "before_request", "after_answer", "before_commit"),
    "reconciler": (
        "before_publish",
        "after_publish",
        "after_remedied",
        "in_findings",
        "in_look",
        "before_set_back",
        "in_retention",
    ),
    "findings": ("before_heal_commit", "before_accept_commit"),
    "retention": ("before_slice", "after_slice"),
    "migrate": ("before_record",),
    "topics": ("before_lanes",),
}

AT_START = frozenset(
    {
        "processor.after_take_over",
        "relay.after_lease",
        "relay.after_init_transactions",
        "relay.after_look",
        "migrate.before_record",
        "topics.before_lanes",
        "retention.before_slice",
        "retention.after_slice",
    }
)
"""Places that a process passes once, when it begins or takes something over."""


def names() -> list[str]:
    """Every failpoint as ``<part>.<place>``."""
    return [f"{part}.{place}" for part, places in POINTS.items() for place in places]
