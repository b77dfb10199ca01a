"""The loop that one writes without a ledger: a pool of threads, and the SDK with its own client."""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import stripe

TOLD = json.loads(sys.argv[1])
CLIENT = stripe.StripeClient(TOLD["api_key"], base_addresses={"api": TOLD["url"]})


def refund(_number: int) -> str:
    """Make one call."""
    params = {"charge": TOLD["charge"], "amount": 1}
    return CLIENT.v1.refunds.create(params).status


def main() -> None:
    """Make all calls; the clock starts when everything is loaded."""
    begun, cpu = time.monotonic(), time.process_time()
    with ThreadPoolExecutor(TOLD["in_flight"]) as pool:
        found = list(pool.map(refund, range(TOLD["calls"])))
    seconds = time.monotonic() - begun
    assert found == ["succeeded"] * TOLD["calls"], "a call did not succeed"
    part = Path(TOLD["answer_file"] + ".part")
    answer = {"per_second": len(found) / seconds, "cpu_seconds": time.process_time() - cpu}
    part.write_text(json.dumps(answer), "ascii")
    part.rename(TOLD["answer_file"])


if __name__ == "__main__":
    main()
