"""Puts together what a proof needs, from settings."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing, nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from onceflow.database import session
from onceflow.kafka_names import reconciler_group
from onceflow.progress_bar import progress_bar
from onceflow.service_options import input_topic, reconciler_options
from onceflow.settings_model import Settings
from onceflow_processor.admission import Rules
from onceflow_processor.schema_check import check_schema
from onceflow_reconciler.ledger_findings import keep
from onceflow_reconciler.stripe_lists import StripeLists
from onceflow_reconciler.verify.proving import Proving
from onceflow_reconciler.verify.question import Answer, Question


def question_of(settings: Settings) -> Question:
    """Return the question about everything."""
    assert settings.deployment.id is not None, "the command needs it"
    return Question(
        kafka=settings.kafka.for_consumer(),
        group=reconciler_group(settings.deployment.id),
        rules=_rules(settings),
        event_topics=tuple(settings.input_topics),
        outcome_topic=settings.topics.outcomes,
        since=None,
        until=None,
        account=None,
        grace_seconds=settings.reconciler.grace_seconds,
    )


def answer_of(
    settings: Settings,
    *,
    since: datetime | None,
    until: datetime | None,
    account: str | None,
    former: Mapping[str, Any] | None,
    with_stripe: bool,
    keep_findings: bool = False,
) -> Answer:
    """Look at all ledgers and compare them.

    Args:
        settings: with whatever the command needs.
        since, until, account, former: as in ``Question``.
        with_stripe: ask Stripe too.
        keep_findings: write what is unexplained as findings.

    Raises:
        Failure: a ledger cannot be read.
    """
    question = replace(question_of(settings), since=since, until=until, account=account, former=former)
    lists = _lists(settings) if with_stripe else None
    with (
        session(settings.database.url.get_secret_value(), role="verify") as connection,
        session(settings.database.url.get_secret_value(), role="verify") as beside,
        nullcontext() if lists is None else closing(lists),
        progress_bar("verify", total=0) as tell,
    ):
        check_schema(connection)
        beside.autocommit = True
        try:
            answer = Proving(connection, question, beside=beside, lists=lists, tell=tell).answer()
        finally:
            # Nothing of it is kept: the tables were temporary.
            connection.rollback()
        if keep_findings:
            keep(connection, answer, mode=settings.stripe.mode, since=since, is_whole=question.is_whole and with_stripe)
            connection.commit()
        return answer


def _rules(settings: Settings) -> Rules:
    assert settings.deployment.id is not None, "the command needs it"
    assert settings.stripe.account is not None, "the command needs it"
    return Rules(
        deployment=settings.deployment.id,
        accounts=frozenset({settings.stripe.account, *settings.stripe.accounts}),
        mode=settings.stripe.mode,
        keys={key.id: key for key in settings.attestation.keys},
        horizon=timedelta(days=settings.processor.horizon_days),
        inputs={one.topic: input_topic(one, settings) for one in settings.inputs},
    )


def _lists(settings: Settings) -> StripeLists:
    options = reconciler_options(settings)
    return StripeLists(
        options.accesses,
        api_base=options.api_base,
        api_version=options.api_version,
        requests_per_second=options.requests_per_second,
        connect_seconds=options.connect_seconds,
        total_seconds=options.total_seconds,
        wait=time.sleep,
    )
