"""Resources that only keep what they are given: created, changed, deleted, listed, each with its event.

Rule: a plain resource decides nothing; whatever moves money or has states has a module of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from onceflow_simulator.books import Books
from onceflow_simulator.listing import lister
from onceflow_simulator.params import Params
from onceflow_simulator.routes import Call, Handler, Routes
from onceflow_simulator.validation import LIST, Spec
from onceflow_simulator.world import Json


@dataclass(frozen=True)
class Plain:
    """One resource.

    Args:
        path: such as ``/v1/products``.
        kind: the ``object`` field, such as ``product``.
        prefix: of its ids.
        required: parameters of the create.
        defaults: fields that a new object has besides those given.
        actions: ``create``, ``update``, ``delete`` as far as it has them.
        filters: of the list: parameter -> field.
        more: names of older versions that the create takes.
        made: called with a new object before its event.
    """

    path: str
    kind: str
    prefix: str
    required: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    actions: tuple[str, ...] = ("create", "update")
    filters: Mapping[str, str] = field(default_factory=dict)
    whole: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    more: tuple[str, ...] = ()
    made: Callable[[Books, Json], None] | None = None


def add_plain(routes: Routes, plain: Plain) -> None:
    """Add the addresses of a plain resource."""
    one = plain.path + "/{id}"
    if "create" in plain.actions:
        routes.post(plain.path, _creator(plain), spec=Spec(required=plain.required, whole=plain.whole, more=plain.more))
    routes.get(plain.path, lister(plain.kind, plain.filters), spec=LIST)
    routes.get(one, retriever(plain.kind))
    if "update" in plain.actions:
        routes.post(one, updater(plain.kind, whole=plain.whole), spec=Spec(whole=plain.whole))
    if "delete" in plain.actions:
        routes.delete(one, deleter(plain.kind))


def retriever(kind: str) -> Handler:
    """A handler that shows an object of a kind."""
    return lambda call: call.books.get(kind, call.ids[0])


def updater(kind: str, *, whole: Collection[str] = ()) -> Handler:
    """A handler that changes an object of a kind, whatever its state."""

    def update(call: Call) -> Json:
        body = call.books.get(kind, call.ids[0])
        previous = apply(body, call.params, whole=whole)
        call.books.emit(f"{kind}.updated", body, previous=previous)
        return body

    return update


def deleter(kind: str) -> Handler:
    """A handler that deletes an object of a kind."""
    return lambda call: deleted(call.books, kind, id=call.ids[0])


def fields_of(params: Params, *, whole: Collection[str] = ()) -> Json:
    """The parameters as fields: numbers where they are whole, texts that say so as truth values."""
    fields: Json = {}
    for name, value in params.items():
        if name == "metadata":
            fields[name] = dict(value) if isinstance(value, dict) else {}
        elif name != "expand":
            fields[name] = int(value) if name in whole else read(value)
    return fields


def read(value: Any) -> Any:
    """A parameter's text as JSON would have it; an empty text unsets."""
    if isinstance(value, dict):
        return {name: read(one) for name, one in value.items()}
    if isinstance(value, list):
        return [read(one) for one in value]
    return {"true": True, "false": False, "": None}.get(value, value)


def merge_metadata(body: Json, params: Params) -> Json:
    """Merge the request's metadata into an object; the values that were there before."""
    if "metadata" not in params:
        return {}
    before = dict(body.get("metadata") or {})
    given = params["metadata"]
    merged = {} if given == "" else {**before, **given}
    merged = {name: text for name, text in merged.items() if text != ""}
    body["metadata"] = merged
    return {"metadata": before}


def apply(body: Json, params: Params, *, whole: Collection[str] = ()) -> Json:
    """Change an object as a request says; the fields as they were before."""
    previous = merge_metadata(body, params)
    for name, value in fields_of(params, whole=whole).items():
        if name != "metadata" and body.get(name) != value:
            previous[name] = body.get(name)
            body[name] = value
    return previous


def _creator(plain: Plain) -> Handler:
    def create(call: Call) -> Json:
        fields = {"metadata": {}, **plain.defaults, **fields_of(call.params, whole=plain.whole)}
        body = call.books.new(plain.kind, prefix=plain.prefix, fields=fields)
        if plain.made is not None:
            plain.made(call.books, body)
        call.books.emit(f"{plain.kind}.created", body)
        return body

    return create


def deleted(books: Books, kind: str, *, id: str) -> Json:
    """Delete an object; what Stripe answers to it."""
    body = books.get(kind, id)
    books.drop(body)
    books.emit(f"{kind}.deleted", body)
    return {"id": id, "object": kind, "deleted": True}
