"""What a data folder of ``onceflow up`` is called and which secrets it has; made once and kept in it.

Rule: a second start of the same folder has the same secrets, so that a webhook endpoint that was set up once goes on
working; the file is readable by its owner only.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path

from onceflow_producer.lifetime import write_state
from onceflow_schemas.failure import Misconfigured

FILE = "identity.json"
ACCOUNT = "acct_embedded"
KEY_ID = "local"
SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class LocalIdentity:
    """The name and the secrets of one data folder."""

    deployment: str
    webhook_secret: str = field(repr=False)
    attestation_secret: str = field(repr=False)


def local_identity(folder: Path) -> LocalIdentity:
    """Return the identity of a data folder that is claimed by this process; a new folder gets one.

    Raises:
        Misconfigured: ``data_folder_unusable``: the file is damaged.
    """
    path = folder / FILE
    if not path.exists():
        made = LocalIdentity(
            deployment=f"local-{secrets.token_hex(4)}",
            webhook_secret=f"whsec_{secrets.token_hex(SECRET_BYTES)}",
            attestation_secret=secrets.token_urlsafe(SECRET_BYTES),
        )
        write_state(path, asdict(made))
        return made
    try:
        return LocalIdentity(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise Misconfigured(
            "data_folder_unusable",
            f"{path} is damaged: {type(error).__name__}",
            "Put it back from a copy, or use another folder with --data; its secrets cannot be made again.",
        ) from error
