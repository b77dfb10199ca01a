"""What may stand in a call: texts, addresses, headers, Stripe's parameters and metadata; checked when it is asked for.

Rule: whatever the other side would refuse for its form is refused here, in the handler, with a stable code; and nothing
gets in that cannot be stored and sent again byte for byte.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from onceflow_schemas.currency import check_amount, check_currency
from onceflow_schemas.failure import Refused
from onceflow_schemas.identity import ACCOUNT_PATTERN
from onceflow_schemas.operations.operation import DEPLOYMENT_KEY, METADATA_KEY
from onceflow_schemas.quoting import quoted

NAME_CHARS_MAX = 255
METADATA_KEYS_MAX = 49
"""Stripe takes 50; one is ours."""
METADATA_KEY_CHARS_MAX = 40
METADATA_VALUE_CHARS_MAX = 500
URL_CHARS_MAX = 2_048
BODY_BYTES_MAX = 65_536
TEXT_BYTES_MAX = 262_144
DEPTH_MAX = 8
JSON_DEPTH_MAX = 64
JSON_INTEGERS = range(-(2**63), 2**64)
INTEGER_MAX = 2**63 - 1
HEADERS_MAX = 32
_KEY_CHARS = 36

EFFECT_PATTERN = re.compile(r"[A-Za-z0-9_.\-]{1,100}")
_NAME = re.compile(r"(?! +\Z)[\x20-\x7e]{1,255}")
_PATH = re.compile(r"/v1/[a-z0-9_]+(?:/[A-Za-z0-9_\-]+)*")
_OBJECT_ID = re.compile(r"[A-Za-z0-9_]{1,255}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+\-.^_`|~]{1,100}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]{0,1000}")
_ADDRESS = re.compile(r"[\x21-\x3f\x41-\x7e]{1,64}@[A-Za-z0-9.\-]{1,190}")
_LINE = re.compile(r"[^\x00-\x1f\x7f]{1,500}")
_SURROGATE = re.compile("[\ud800-\udfff]")
_UNSENDABLE = re.compile("[\x00\ud800-\udfff]")

SDK_OPTIONS = frozenset(
    {"api_key", "stripe_version", "stripe_account", "stripe_context", "max_network_retries", "idempotency_key"}
    | {"content_type", "headers", "base", "method_", "url_", "self"}
)
"""Names that the SDK's ``raw_request_async`` takes for itself: a parameter called so would never arrive at Stripe."""

_OUR_HEADERS = frozenset({"idempotency-key", "content-length", "host", "connection", "transfer-encoding"})
_SECRET_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key"})

_AMOUNTS = re.compile(r"amount(?:_[a-z]+)*|(?:application_fee|unit|transfer)_amount|[a-z_]+_amount")


def check_request(*, effect: Any, subject: Any, occurrence: Any, order_key: Any, account: Any) -> None:
    """Refuse an operation whose name cannot be one.

    Args:
        effect: letters, digits, ``_ . -``, at most 100.
        subject, order_key: printable ASCII, at most 255, not only spaces: they stand in ids, keys and logs.
        occurrence: from 1.
        account: ``acct_...``.

    Raises:
        Refused: ``operation_refused``.
    """
    if not isinstance(effect, str) or not EFFECT_PATTERN.fullmatch(effect):
        raise _refused(f"the effect {quoted(effect)} is not letters, digits, '_', '.', '-'")
    for name, text in (("subject", subject), ("order_key", order_key)):
        if (text is not None or name == "subject") and not (isinstance(text, str) and _NAME.fullmatch(text)):
            raise _refused(
                f"the {name} {quoted(text)} is not 1 to {NAME_CHARS_MAX} printable ASCII characters, or blank"
            )
    if type(occurrence) is not int or not 1 <= occurrence < 2**31:
        raise _refused(f"the occurrence {quoted(occurrence, 40)} is not a number from 1")
    if not isinstance(account, str) or not ACCOUNT_PATTERN.fullmatch(account):
        raise _refused(f"the account {quoted(account)} is not acct_ and letters, digits, underscores")


def check_path(path: Any) -> str:
    """Return a path of Stripe's v1 API."""
    if not isinstance(path, str) or len(path) > NAME_CHARS_MAX or not _PATH.fullmatch(path):
        raise _refused(f"the path {quoted(path)} is not /v1/, a resource in small letters, and ids or verbs")
    return path


def check_object_id(text: Any, name: str) -> str:
    """Return the id of an object at Stripe, which may stand in a path."""
    if not isinstance(text, str) or not _OBJECT_ID.fullmatch(text):
        raise _refused(f"{name} is {quoted(text)}, not the id of an object")
    return text


def check_params(params: Mapping[str, Any], *, negative: bool = False) -> dict[str, Any]:
    """Return the parameters of a Stripe call without those that are None.

    Args:
        params: text, integers, true and false, lists and objects of these.
        negative: whether amounts may be zero or less.

    Raises:
        Refused: also ``amount_refused``, ``currency_refused``, ``metadata_refused``.
    """
    for name in check_mapping(params, "the parameters"):
        _check_key(name, "the parameters")
    if params.get("metadata") is not None:
        check_metadata(params["metadata"])
    given = {name: _plain(name, value, depth=1) for name, value in params.items() if value is not None}
    if options := SDK_OPTIONS & set(given):
        raise _refused(f"{', '.join(sorted(options))}: options of a call are set by onceflow")
    currency = check_currency(given["currency"]) if "currency" in given else None
    for name, value in given.items():
        if _AMOUNTS.fullmatch(name) and not isinstance(value, dict | list):
            check_amount(value, currency, name=name, negative=negative)
    _check_size(str(given), BODY_BYTES_MAX, "the parameters")
    return given


def check_metadata(metadata: Any) -> None:
    """Refuse metadata that Stripe would refuse once ours is added.

    Raises:
        Refused: ``metadata_refused``.
    """
    if not isinstance(metadata, Mapping) or len(metadata) > METADATA_KEYS_MAX:
        raise Refused("metadata_refused", f"metadata is not an object of at most {METADATA_KEYS_MAX} keys")
    for key, value in metadata.items():
        if not isinstance(key, str) or not 1 <= len(key) <= METADATA_KEY_CHARS_MAX or set("[]") & set(key):
            raise Refused(
                "metadata_refused", f"the metadata key {quoted(key)} is not 1 to 40 characters without brackets"
            )
        if key in (METADATA_KEY, DEPLOYMENT_KEY):
            raise Refused("metadata_refused", f"the metadata key {key} is set by onceflow")
        if not isinstance(value, str) or len(value) > METADATA_VALUE_CHARS_MAX:
            raise Refused("metadata_refused", f"metadata {key!r} is not text of at most 500 characters")
        if _UNSENDABLE.search(key + value):
            raise Refused("metadata_refused", f"metadata {quoted(key)} holds characters that cannot be sent")


def check_url(url: Any) -> str:
    """Return an http(s) address without user, password and fragment."""
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or len(url) > URL_CHARS_MAX or " " in url:
        raise _refused(f"the address is not a URL of at most {URL_CHARS_MAX} ASCII characters")
    try:
        parts = urlsplit(url)
        sound = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        sound = None
        parts = urlsplit("")
    if not sound or parts.username or parts.password or parts.fragment:
        raise _refused("the address is not http(s)://host..., without user, password and fragment")
    return url


def check_flag(value: Any, name: str) -> bool:
    """Return True or False; nothing else counts as one of them, least of all the text ``no``."""
    if type(value) is not bool:
        raise _refused(f"{name} is {quoted(value, 40)}, not True or False")
    return value


def check_mapping(value: Any, name: str) -> Mapping[Any, Any]:
    """Return a mapping."""
    if not isinstance(value, Mapping):
        raise _refused(f"{name} is {quoted(value, 40)}, not a mapping such as a dict")
    return value


def check_credential(name: Any) -> str:
    """Return the name of a credential in the settings."""
    if not isinstance(name, str) or not EFFECT_PATTERN.fullmatch(name):
        raise _refused("the credential is not the name of one")
    return name


def check_lookup_url(url: Any) -> str:
    """Return the address of a look-up, in which ``{key}`` stands for the operation's key and nothing else for anything."""
    if not isinstance(url, str) or "{key}" not in url:
        raise _refused("the lookup is not an address with {key} in it, which stands for the operation's key")
    filled = url.replace("{key}", "0" * _KEY_CHARS)
    if set("{}") & set(filled):
        raise _refused("the lookup has other braces than those of {key}")
    check_url(filled)
    return url


def check_headers(headers: Any) -> dict[str, str]:
    """Return headers that can be sent and may be stored: no secrets, none of ours, none twice."""
    check_mapping(headers, "headers")
    if len(headers) > HEADERS_MAX:
        raise _refused(f"more than {HEADERS_MAX} headers")
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise _refused(f"the header name {quoted(name)} is none")
        if name.lower() in _OUR_HEADERS:
            raise _refused(f"the header {name} is set by onceflow")
        if name.lower() in _SECRET_HEADERS:
            raise _refused(f"the header {name} would be stored with the operation: name a credential of the settings")
        if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
            raise _refused(f"the value of header {name} is not at most 1,000 printable ASCII characters")
    if len({name.lower() for name in headers}) < len(headers):
        raise _refused("a header is given twice: upper and lower case are the same in their names")
    return dict(headers)


def check_address(address: Any, name: str) -> str:
    """Return a mail address that no header can be smuggled in with."""
    if not isinstance(address, str) or not _ADDRESS.fullmatch(address):
        raise _refused(f"{name} is not a plain ASCII mail address")
    return address


def check_line(text: Any, name: str) -> str:
    """Return one line of text."""
    if not isinstance(text, str) or not _LINE.fullmatch(text) or _SURROGATE.search(text):
        raise _refused(f"{name} is not one line of 1 to 500 characters")
    return text


def check_text(text: Any, name: str) -> str:
    """Return text of a bounded size."""
    if not isinstance(text, str) or _UNSENDABLE.search(text):
        raise _refused(f"{name} is not plain text")
    _check_size(text, TEXT_BYTES_MAX, name)
    return text


def _plain(name: str, value: Any, *, depth: int) -> Any:
    """A value as plain JSON; numbers that are no integers and all other things are refused."""
    if depth > DEPTH_MAX:
        raise _refused(f"{name} is nested deeper than {DEPTH_MAX} levels")
    if isinstance(value, Mapping):
        for inner in value:
            _check_key(inner, name)
        return {inner: _plain(f"{name}[{inner}]", each, depth=depth + 1) for inner, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(name, each, depth=depth + 1) for each in value]
    if isinstance(value, str):
        return check_text(value, name)
    if type(value) is bool or (type(value) is int and abs(value) <= INTEGER_MAX):
        return value
    raise Refused(_code_for(name), f"{name} is {quoted(value, 40)}: only text, integers, true and false can be sent")


def check_json(value: Any, name: str, *, depth: int = 0) -> None:
    """Refuse what JSON would not hold exactly as it is: texts that cannot be sent, numbers that are none.

    Values of other types are left to whoever writes the JSON, except where they are an amount.

    Args:
        value: a mapping, list or plain value.
        name: what it is called in a message; empty for the arguments of an effect, each of which has its own name.
        depth: how deep it stands.

    Raises:
        Refused: ``operation_refused``, of amounts ``amount_refused``.
    """
    if depth > JSON_DEPTH_MAX:
        raise _refused(f"{name:.80} is nested deeper than {JSON_DEPTH_MAX} levels")
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _check_key(key, name or "the arguments")
            check_json(inner, f"{name}[{key}]" if name else key, depth=depth + 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            check_json(inner, name, depth=depth + 1)
    else:
        _check_leaf(value, name)


def _check_leaf(value: Any, name: str) -> None:
    if isinstance(value, str):
        if _UNSENDABLE.search(value):
            raise _refused(f"{name:.80} holds characters that cannot be sent")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise Refused(_code_for(name), f"{name:.80} is {value}, which is no number of JSON")
    elif _is_amount(name) and not (value is None or (isinstance(value, int) and value in JSON_INTEGERS)):
        raise Refused("amount_refused", f"{name:.80} is {quoted(value, 40)}, not an integer of minor units")


def _is_amount(name: str) -> bool:
    """By its own name: that of ``items[unit_amount]`` is ``unit_amount``."""
    return _AMOUNTS.fullmatch(name.rpartition("[")[2].rstrip("]")) is not None


def _code_for(name: str) -> str:
    return "amount_refused" if _is_amount(name) else "operation_refused"


def _check_key(key: Any, name: str) -> None:
    if not isinstance(key, str) or not key or _UNSENDABLE.search(key):
        raise _refused(f"{name}: a key is {quoted(key, 40)}, not text that can be sent")


def _check_size(text: str, size_max: int, name: str) -> None:
    if len(text.encode("utf-8", "replace")) > size_max:
        raise _refused(f"{name} has more than {size_max} bytes")


def _refused(message: str) -> Refused:
    return Refused("operation_refused", message)
