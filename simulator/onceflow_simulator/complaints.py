"""What is wrong with a request of ``/_sim``, in one sentence.

Rule: whoever mistyped reads what it should have been, and never the form in which a library reports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from fastapi import HTTPException
from pydantic import BaseModel, ValidationError

Model = TypeVar("Model", bound=BaseModel)
STATUS = 422


def complaint(errors: Iterable[Mapping[str, Any]], *, known: Iterable[str] = ()) -> str:
    """Return the sentence.

    Args:
        errors: as pydantic has them: ``loc``, ``msg``, ``type``.
        known: the names that there are, for a name that there is not.
    """
    return "; ".join(dict.fromkeys(_one(error, tuple(known)) for error in errors))


def read(model: type[Model], given: Mapping[str, Any]) -> Model:
    """Return the fields as what they must be.

    Raises:
        HTTPException: they are not; its detail is the sentence.
    """
    try:
        return model(**given)
    except ValidationError as error:
        raise HTTPException(STATUS, complaint(error.errors(), known=model.model_fields)) from None


def one_of(name: str, known: Iterable[str], *, kind: str) -> str:
    """Return a name that there is.

    Raises:
        HTTPException: there is no such thing; its detail names those that there are.
    """
    names = list(known)
    if name not in names:
        raise HTTPException(STATUS, f"no {kind} {name!r}; there are {', '.join(names)}")
    return name


def _one(error: Mapping[str, Any], known: tuple[str, ...]) -> str:
    place = [str(part) for part in error["loc"] if part != "body"]
    name = ".".join(place)
    if error["type"] != "extra_forbidden":
        return f"{name}: {error['msg']}" if name else str(error["msg"])
    return f"there is no {name}" + (f"; there are {', '.join(known)}" if known and len(place) == 1 else "")
