"""The demo from its first line to its last: one webhook, 2,000 and 250 operations with deaths, one poisoned event, the sum.

Rule: whatever happens, the last line on standard output says ``demo: ok`` or ``demo: FAILED``, and nothing that the demo
started is left behind.
"""

from __future__ import annotations

import random
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onceflow.demo.breaking import Breaker, Death, plan_deaths
from onceflow.demo.counting import count, money_published, money_sent
from onceflow.demo.delivery import Attempt, StripeLikeSender
from onceflow.demo.first_event import put_first, send_and_see
from onceflow.demo.ledgers import Ledgers, read_ledgers, wait_until_settled
from onceflow.demo.narration import Narrator
from onceflow.demo.operation_count import OperationSums, count_operations
from onceflow.demo.poison import BROKEN, HANDLERS, Mended, Poison, PoisonAct, deploy, plan_poison
from onceflow.demo.poison_count import count_poison
from onceflow.demo.proof import prove
from onceflow.demo.proof_count import Proved, listable
from onceflow.demo.report import Report, write_failed, write_report
from onceflow.demo.running_system import RunningSystem
from onceflow.demo.shop import BAD_CARDS, OPERATIONS, Deed, Order, Shop, break_stripe, plan_deeds
from onceflow.demo.traffic import REQUESTS, Plan, plan_traffic
from onceflow_schemas.failure import Failure
from onceflow_simulator import SimulatorClient

SEED_MAX = 10**6
REQUESTS_PER_SECOND = 120.0
"""Slow enough that every death falls into traffic, fast enough for a short demo; the road itself takes far more."""


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """What the command line says.

    ``environment``: of the child ``onceflow up``, without settings of any other installation.  ``folder``: keeps data
    and logs when given; else they live in a temporary folder that is removed.
    """

    environment: Mapping[str, str]
    seed: int | None = None
    requests: int = REQUESTS
    folder: Path | None = None
    as_json: bool = False


def run(options: DemoOptions) -> int:
    """Run the demo; return 0 when the sum is right, else 1."""
    seed = options.seed if options.seed is not None else random.randrange(SEED_MAX)  # noqa: S311 - only a name for a run
    folder = options.folder or Path(tempfile.mkdtemp(prefix="onceflow-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    narrator = Narrator()
    passed = False
    former = signal.signal(signal.SIGTERM, _interrupt)
    try:
        passed = _run(options, seed=seed, folder=folder, narrator=narrator)
    except Failure as failure:
        write_failed(f"{failure.code}: {failure.message}", as_json=options.as_json, seed=seed)
    except KeyboardInterrupt:
        write_failed("interrupted", as_json=options.as_json, seed=seed)
    except Exception as error:  # noqa: BLE001 - the last line must be there whatever broke
        write_failed(f"{type(error).__name__}: {error}", as_json=options.as_json, seed=seed)
    finally:
        signal.signal(signal.SIGTERM, former)
        if passed and options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
        elif not passed:
            narrator.say(f"data and logs are kept in {folder}")
    return 0 if passed else 1


def _interrupt(_number: int, _frame: object) -> None:
    """End as Ctrl-C does: everything is stopped, and the last line is written."""
    raise KeyboardInterrupt


def _run(options: DemoOptions, *, seed: int, folder: Path, narrator: Narrator) -> bool:
    began = time.monotonic()
    plan = plan_traffic(seed=seed, now=int(time.time()), count=options.requests)
    narrator.act(f"onceflow demo, seed {seed} (the same again: onceflow demo --seed {seed})")
    deeds = plan_deeds(seed=seed, requests=options.requests)
    narrator.say(
        "starting PostgreSQL, Kafka, a simulated Stripe and our parts (the first time Kafka is fetched, 45 MB)"
    )
    deploy(BROKEN, folder)
    poison = plan_poison(seed=seed, now=int(time.time()))
    with RunningSystem(folder, environment={**options.environment, **OPERATIONS}, handlers=HANDLERS) as system:
        ready = system.start(say=narrator.say)
        narrator.say(f"all up: {ready.webhook_url.partition('/webhooks')[0]}/readyz")
        sender = StripeLikeSender(lambda: (system.ready.webhook_url, system.ready.webhook_secret), seed=seed)
        shop = Shop(lambda: system.ready, deeds)
        try:
            deaths = _send_all(plan, seed=seed, system=system, sender=sender, shop=shop, narrator=narrator)
            attempts, mended = _mend(poison, seed=seed, system=system, narrator=narrator)
            reason = _settle(system, narrator)
        finally:
            sender.abandon()
            shop.abandon()
        ledgers = read_ledgers(system.ready)
        result = count(
            plan.joined(poison.events),
            [*sender.attempts, *attempts],
            ledgers=ledgers,
            sums=_sums(deeds, ledgers),
            poison=count_poison(poison, mended, written=ledgers.written),
            proved=_prove(plan, poison, system=system, narrator=narrator),
            unsettled=reason,
        )
        sums = (money_sent(plan, ledgers.movements), money_published(ledgers))
        narrator.say("stopping everything")
    report = Report(
        seed=seed, seconds=time.monotonic() - began, count=result, deaths=deaths, sent=sums[0], published=sums[1]
    )
    write_report(report, as_json=options.as_json)
    return report.ok


def _sums(deeds: list[Deed], ledgers: Ledgers) -> OperationSums:
    declined = sum(1 for deed in deeds if isinstance(deed, Order) and deed.payment_method in BAD_CARDS)
    return count_operations(len(deeds), entries=ledgers.operations, movements=ledgers.movements, declined=declined)


def _send_all(
    plan: Plan, *, seed: int, system: RunningSystem, sender: StripeLikeSender, shop: Shop, narrator: Narrator
) -> list[Death]:
    """The first two acts; returns how each part died."""
    narrator.act("Act 1: one webhook in, one outcome out")
    first = put_first(plan)
    seconds = send_and_see(first, ready=system.ready, sender=sender)
    if seconds is None:
        narrator.say(f"{first.type}: its outcome was not seen in time (the count will say whether it is lost)")
    else:
        narrator.say(f"{first.type}: from the request to the outcome in the topic {seconds * 1000:.0f} ms")
    narrator.act(f"Act 2: {len(plan.requests):,} webhooks, {shop.planned} refunds and charges, and each part is killed")
    narrator.say("the simulated Stripe loses every tenth request and every tenth answer of our refunds and charges")
    break_stripe(SimulatorClient(system.ready.stripe_api_base))
    shop.open()
    breaker = Breaker(system, plan_deaths(seed=seed, requests=len(plan.requests)), say=narrator.say)
    pause = threading.Event()
    with narrator:
        for number, request in enumerate(plan.requests[1:], start=1):
            breaker.before_request(number)
            sender.send(request)
            shop.keep_pace(number, total=len(plan.requests))
            text = f"{sender.answered:,} answered 200, {shop.done} of {shop.planned} refunds and charges asked for"
            narrator.numbers(number, total=len(plan.requests), text=text)
            pause.wait(1 / REQUESTS_PER_SECOND)
        breaker.wait()
        sender.finish()
        shop.finish()
    return breaker.deaths


def _mend(poison: Poison, *, seed: int, system: RunningSystem, narrator: Narrator) -> tuple[list[Attempt], Mended]:
    narrator.act("Act 3: one event breaks its handler, and the handler is mended")
    act = PoisonAct(system, poison, say=narrator.say)
    mended = act.play(seed=seed)
    return act.attempts, mended


def _prove(plan: Plan, poison: Poison, *, system: RunningSystem, narrator: Narrator) -> Proved:
    narrator.act("Act 5: the proof, over Stripe's list and all ledgers")
    # What is kept for a person is what no Stripe writes: its list cannot show it.
    impossible = {item.body for item in plan.odd if item.code is not None}
    bodies = [one.body for one in plan.requests if one.kind != "forged" and one.body not in impossible]
    return prove(system, listable([*bodies, *(event.body for event in poison.events)]), say=narrator.say)


def _settle(system: RunningSystem, narrator: Narrator) -> str | None:
    narrator.act("Act 4: is the sum still right?")
    narrator.say("waiting until every record is done, every operation settled and every outcome published")
    reason = wait_until_settled(lambda: system.ready)
    narrator.say("settled; counting from raw topics and tables" if reason is None else f"not settled: {reason}")
    return reason
