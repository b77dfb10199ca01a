"""Who asks: the API key, its account and mode, and the connected account of the header ``Stripe-Account``.

Rule: a key of test mode never sees live objects, and a key that may not is told by name what it lacks.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

from onceflow_simulator import errors
from onceflow_simulator.world import Account, ApiKey, World

_FORM = re.compile(r"(?:sk|rk)_(?P<mode>test|live)_[A-Za-z0-9_]{1,240}")


@dataclass(frozen=True)
class Asker:
    """Who asks.

    Args:
        account: whose objects are meant: the key's own account, or the connected one.
    """

    api_key: str
    known: ApiKey
    account: Account


def identify(world: World, *, authorization: str, stripe_account: str) -> Asker:
    """Find out who asks.

    Raises:
        StripeError: 401, no key or none that is good; 403, no access to the connected account.
    """
    key = _key(authorization)
    if not key:
        raise errors.no_key()
    form = _FORM.fullmatch(key)
    known = world.api_keys.get(key)
    if form is None or (known is None and world.knobs.strict_keys):
        raise errors.bad_key(key)
    known = known or ApiKey(world.platform)
    if known.revoked:
        raise errors.expired_key(key)
    livemode = form["mode"] == "live"
    if not stripe_account or stripe_account == known.account:
        return Asker(key, known, world.account(known.account, livemode=livemode))
    state = world.connections.get(stripe_account)
    if state == "deauthorized" or (state is None and world.knobs.accounts_must_exist):
        raise errors.no_access(key, stripe_account)
    return Asker(key, known, world.account(stripe_account, livemode=livemode))


def check_permission(asker: Asker, permission: str) -> None:
    """Refuse a restricted key that lacks a permission; ``write`` includes ``read``.

    Raises:
        StripeError: 403, which names the permission.
    """
    granted = asker.known.permissions
    if granted is None:
        return
    name = permission.removeprefix("rak_")
    if name in granted or (name.endswith("_read") and f"{name[:-5]}_write" in granted):
        return
    raise errors.not_permitted(asker.api_key, asker.account.id, permission=permission)


def _key(authorization: str) -> str:
    scheme, _, rest = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(rest).decode("ascii", "replace").partition(":")[0]
        except ValueError:
            return ""
    return ""
