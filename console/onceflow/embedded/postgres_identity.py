"""Decides as which user PostgreSQL runs, since it refuses to run as root.

Rule: nothing outside of ``<data>/postgres`` changes its owner or mode.  A plain user runs it as itself.  Root gives
it to ``nobody`` where that user can reach both programs and data; else it enters a user namespace in which root looks
like ``nobody`` while files stay root's; where the container forbids that too, the start is refused.
"""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from onceflow.embedded.child_process import Command, run_to_end
from onceflow_schemas.failure import Misconfigured

PROBE_TIMEOUT_SECONDS = 20.0
PLAIN_USER = "nobody"
NAMESPACE_ID = 65534


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """As whom the server runs.

    Args:
        launch: the identity text of ``launcher``.
        user_id: the owner that its files must have, as seen from outside.
        group_id: their group.
    """

    launch: str
    user_id: int
    group_id: int


def choose_identity(program: Path, data_root: Path) -> ServerIdentity:
    """Return the first identity that can run the program and reach the data folder.

    Raises:
        Misconfigured: ``root_not_possible``.
    """
    if os.geteuid() != 0:
        return ServerIdentity("same", os.geteuid(), os.getegid())
    problems = []
    for identity in _identities_of_root():
        command = Command([str(program), "--version"], directory=data_root, identity=identity.launch)
        finished = run_to_end(command, timeout_seconds=PROBE_TIMEOUT_SECONDS)
        if finished.exit_code == 0:
            return identity
        problems.append(f"{identity.launch}: {finished.output.strip()}")
    raise Misconfigured(
        "root_not_possible",
        f"PostgreSQL does not run as root, and no other way is open here ({'; '.join(problems)})",
        "Run as a plain user, or put the virtual environment and the data folder where the user nobody can reach them.",
    )


def own(folder: Path, identity: ServerIdentity) -> None:
    """Give the folder and all below it to the identity; nothing happens when the folder is its own already."""
    if os.geteuid() != 0 or folder.stat().st_uid == identity.user_id:
        return
    for path in folder.rglob("*"):
        os.chown(path, identity.user_id, identity.group_id, follow_symlinks=False)
    # The folder itself comes last: a change that was cut off is then done again.
    os.chown(folder, identity.user_id, identity.group_id)


def _identities_of_root() -> list[ServerIdentity]:
    found = []
    try:
        entry = pwd.getpwnam(PLAIN_USER)
        found.append(ServerIdentity(f"user:{entry.pw_uid}:{entry.pw_gid}", entry.pw_uid, entry.pw_gid))
    except KeyError:
        pass
    found.append(ServerIdentity(f"namespace:{NAMESPACE_ID}:{NAMESPACE_ID}", os.geteuid(), os.getegid()))
    return found
