"""Stripe's error bodies, word for word as far as they are known.

Rule: an error is an answer with a status, a type and (where Stripe gives one) a code; clients decide by these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DOC = "https://stripe.com/docs/error-codes/"


class StripeError(Exception):
    """An answer that is not 200.

    Args:
        status: HTTP status.
        type: ``invalid_request_error``, ``card_error``, ``idempotency_error``, ``api_error``.
        message: for people.
        code: the stable code; None where Stripe gives none.
        param: the parameter that is at fault.
        extra: more fields of the ``error`` object.
        headers: more headers of the answer.
    """

    def __init__(
        self,
        status: int,
        type: str,
        *,
        message: str,
        code: str | None = None,
        param: str | None = None,
        extra: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.type = type
        self.message = message
        self.code = code
        self.param = param
        self.extra = dict(extra or {})
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """The JSON of the answer."""
        error: dict[str, Any] = {**self.extra}
        if self.code is not None:
            error["code"] = self.code
            error["doc_url"] = DOC + self.code.replace("_", "-")
        error["message"] = self.message
        if self.param is not None:
            error["param"] = self.param
        error["type"] = self.type
        return {"error": error}


def invalid(message: str, *, code: str | None = None, param: str | None = None, status: int = 400) -> StripeError:
    """A request that cannot be executed as it is."""
    return StripeError(status, "invalid_request_error", message=message, code=code, param=param)


def missing(kind: str, id: str, *, param: str = "id") -> StripeError:
    """404: there is no such object in this account and mode."""
    return invalid(f"No such {kind}: '{id}'", code="resource_missing", param=param, status=404)


def no_such_route(method: str, path: str) -> StripeError:
    """404: Stripe has no such address, or the simulator does not know it."""
    return invalid(
        f"Unrecognized request URL ({method}: {path}). Please see https://stripe.com/docs or the simulator's page.",
        status=404,
    )


def no_key() -> StripeError:
    """401: no key was given."""
    return invalid(
        "You did not provide an API key. You need to provide your API key in the Authorization header, using Bearer auth.",
        status=401,
    )


def bad_key(key: str) -> StripeError:
    """401: no such key."""
    return invalid(f"Invalid API Key provided: {masked(key)}", status=401)


def expired_key(key: str) -> StripeError:
    """401: the key was revoked or has expired."""
    return invalid(f"Expired API Key provided: {masked(key)}", code="api_key_expired", status=401)


def not_permitted(key: str, account: str, *, permission: str) -> StripeError:
    """403: a restricted key without the permission that this endpoint needs, which is named."""
    return invalid(
        f"The provided key '{masked(key)}' does not have the required permissions for this endpoint on account"
        f" '{account}'. Having the '{permission}' permission would allow this request to continue.",
        status=403,
    )


def no_access(key: str, account: str) -> StripeError:
    """403: the key's platform is not connected with this account."""
    return invalid(
        f"The provided key '{masked(key)}' does not have access to account '{account}' (or that account does not"
        " exist). Application access may have been revoked.",
        code="account_invalid",
        status=403,
    )


def limited(reason: str | None, *, retry_after: int | None = None) -> StripeError:
    """429 by a limiter (with its reason in a header), or without a reason: the lock time-out on an object."""
    headers = {} if retry_after is None else {"retry-after": str(retry_after)}
    if reason is None:
        return StripeError(
            429,
            "invalid_request_error",
            message="This object cannot be accessed right now because another API request or Stripe process is"
            " currently accessing it. If you see this error intermittently, retry the request.",
            code="lock_timeout",
            headers=headers,
        )
    return StripeError(
        429,
        "invalid_request_error",
        message="Request rate limit exceeded. Learn more about rate limits here https://stripe.com/docs/rate-limits.",
        code="rate_limit",
        headers={"stripe-rate-limited-reason": reason, **headers},
    )


def in_flight(key: str) -> StripeError:
    """409: the first request with this key has not ended."""
    return StripeError(
        409,
        "invalid_request_error",
        message="There is currently another in-progress request using this Idempotent Key (that probably means you"
        f" submitted twice, and the other request is still going through): {key}. Please try again later.",
        code="idempotency_key_in_use",
    )


def other_parameters(key: str) -> StripeError:
    """400: the key was first used with other parameters."""
    return StripeError(
        400,
        "idempotency_error",
        message="Keys for idempotent requests can only be used with the same parameters they were first used with."
        f" Try using a key other than '{key}' if you meant to execute a different request.",
    )


def other_endpoint(key: str, path: str) -> StripeError:
    """400: the key was first used for another endpoint."""
    return StripeError(
        400,
        "idempotency_error",
        message="Keys for idempotent requests can only be used for the same endpoint they were first used for"
        f" ('{path}' using '{key}'). Try using a different key if you meant to execute a different request.",
    )


def masked(key: str) -> str:
    """A key as error messages may show it."""
    head = "_".join(key.split("_")[:2])
    return f"{head}_{'*' * 10}{key[-4:]}" if len(key) > len(head) + 8 else f"{key[:3]}****"
