"""Becomes a service process: takes an identity, ties its life to the parent, then is replaced by the command.

Rule: what runs after this file is a direct child under the very process id that the parent knows, and the kernel
ends it when the parent dies, however the parent dies.

Why this form, and not a guardian process that watches a pipe: a guardian is one more process that can itself be
killed, and then nothing ends the service.  ``PR_SET_PDEATHSIG`` is kept by the kernel and survives ``exec``, so
there is nothing left to kill.  It has three traps, which are met here and in ``child_process``:

- changing the user id or entering a user namespace clears it, so it is set last, by the process itself;
- the parent may die before it is set, so the parent's id is compared afterwards;
- it is tied to the parent *thread*, so ``child_process`` starts every child from one thread that never ends.

The signal is SIGKILL for Java (a stuck broker cannot refuse it; its log is made for that) and SIGQUIT for
PostgreSQL (the postmaster ends its backends itself, and after 5 seconds by SIGKILL).  Systems without prctl have no
such net: there a parent that is killed with -9 leaves the services, and the next start says whose port or folder it is.

This file is run by path with ``python -I -S`` and so imports nothing but the standard library: 20 ms.

    launcher.py PARENT_PID DEATH_SIGNAL IDENTITY DIRECTORY COMMAND [ARGUMENT ...]

IDENTITY is ``same``, ``user:UID:GID`` (give up root) or ``namespace:UID:GID`` (a user namespace in which root looks
like that user; files stay root's).  Exit codes of its own: 124 parent gone, 125 identity, 126 folder, 127 command.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import NoReturn

PR_SET_PDEATHSIG = 1
CLONE_NEWUSER = 0x10000000
PRIVATE_UMASK = 0o077

EXIT_PARENT_GONE = 124
EXIT_IDENTITY = 125
EXIT_FOLDER = 126
EXIT_COMMAND = 127


def main(arguments: list[str]) -> NoReturn:
    """Do the four steps in the one order that works, then become the command."""
    parent_pid, death_signal, identity, directory, *command = arguments
    os.umask(PRIVATE_UMASK)
    try:
        take_identity(identity)
    except OSError as error:
        _fail(EXIT_IDENTITY, f"cannot become {identity}: {error}")
    if sys.platform == "linux":
        _call("prctl", PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
    if os.getppid() != int(parent_pid):
        _fail(EXIT_PARENT_GONE, "the parent ended before the command began")
    try:
        os.chdir(directory)
    except OSError as error:
        _fail(EXIT_FOLDER, f"cannot enter the folder: {error}")
    try:
        os.execv(command[0], command)  # noqa: S606 - becoming the command is the task
    except OSError as error:
        _fail(EXIT_COMMAND, f"cannot run {command[0]}: {error}")


def take_identity(identity: str) -> None:
    """Become the user that the text names.

    Raises:
        OSError: the kernel or the container forbids it.
    """
    if identity == "same":
        return
    kind, user, group = identity.split(":")
    if kind == "user":
        os.setgroups([])
        os.setgid(int(group))
        os.setuid(int(user))
        return
    outer_user, outer_group = os.geteuid(), os.getegid()
    _call("unshare", CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"{user} {outer_user} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"{group} {outer_group} 1", encoding="ascii")


def _call(name: str, *numbers: int) -> None:
    """Call a function of the C library that answers 0 or sets errno."""
    function = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if function is None or function(*(ctypes.c_ulong(number) for number in numbers)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _fail(code: int, message: str) -> NoReturn:
    sys.stderr.write(f"launcher: {message}\n")
    sys.exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
