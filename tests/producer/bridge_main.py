"""A bridge as a process of its own, told everything by one JSON argument; stands in for the command line in tests."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import structlog

from onceflow_producer.bridge import BridgeOptions, run
from onceflow_producer.endpoint_secrets import parse_secrets
from onceflow_producer.rate import RatePolicy
from onceflow_schemas.attestation import AttestationKey
from onceflow_schemas.failure import Misconfigured


def main(told: dict[str, Any]) -> int:
    logging.basicConfig(stream=sys.stderr, format='{"library": "%(name)s", "text": "%(message)s"}', level=logging.INFO)
    structlog.configure(
        processors=[structlog.processors.add_log_level, structlog.processors.JSONRenderer()],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    options = BridgeOptions(
        secrets=parse_secrets(told.pop("secrets")),
        attestation_keys=(AttestationKey("test-key", bytes.fromhex(told.pop("attestation_secret"))),),
        state_file=Path(told.pop("state_file")),
        invalid_rate=RatePolicy(per_second=told.pop("rate_per_second"), burst=told.pop("rate_burst")),
        **told,
    )
    try:
        return run(options)
    except Misconfigured as refused:
        print(json.dumps({"event": "misconfigured", "code": refused.code, "message": refused.message}), file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
