"""Reads and writes a proof file.

Rule: a file is written whole or not at all; what cannot be read as a proof is never overwritten.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onceflow_reconciler.verify.hours import is_proof
from onceflow_schemas.failure import Refused

_HINT = "Name another file, or move this one away."


def read_proof(path: Path) -> dict[str, Any] | None:
    """Return what a former run wrote; None when there is no such file.

    Raises:
        Refused: ``proof_refused``: it is something else.
    """
    try:
        read = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise Refused("proof_refused", f"{path} cannot be read as a proof ({type(error).__name__})", _HINT) from error
    if not is_proof(read):
        raise Refused("proof_refused", f"{path} is no proof of this form", _HINT)
    return dict(read)


def write_proof(path: Path, proof: Mapping[str, Any]) -> None:
    """Write a proof.

    Raises:
        Refused: ``proof_refused``: the file cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("w", encoding="utf-8") as file:
            json.dump(proof, file, indent=1, sort_keys=True)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise Refused("proof_refused", f"{path} cannot be written ({error.strerror})", _HINT) from error
