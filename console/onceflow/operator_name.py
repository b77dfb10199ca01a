"""Who runs a command, for rows of the audit.

Rule: it names the account of the system, not a variable that anybody can set.
"""

from __future__ import annotations

import os
import pwd
import socket


def operator_name() -> str:
    """Return ``login@host``; the number of the user where the system has no name for it, as in many containers."""
    user = os.getuid()
    try:
        login = pwd.getpwuid(user).pw_name
    except KeyError:
        login = str(user)
    return f"{login}@{socket.gethostname()}"
