"""What an HTTP error carries: RFC 9457 problem details, with the field that is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

from pydantic import BaseModel, Field, ValidationError

PROBLEM = "application/problem+json"


@dataclass(frozen=True)
class Problem:
    """An HTTP error.

    Attributes:
        status: the HTTP status code.
        detail: what is wrong and what to do, in a sentence.
        field: the part of the request that is wrong, if one is.
    """

    status: int
    detail: str
    field: str | None = None


class ProblemBody(BaseModel):
    """RFC 9457 problem details."""

    type: str = "about:blank"
    title: str = Field(description="The status code's own phrase.")
    status: int
    detail: str = Field(description="What is wrong and what to do.")
    field: str | None = Field(default=None, description="The part of the request that is wrong.")


def encode_problem(problem: Problem) -> bytes:
    """The JSON body of an error."""
    title = HTTPStatus(problem.status).phrase
    body = ProblemBody(title=title, status=problem.status, detail=problem.detail, field=problem.field)
    return body.model_dump_json(exclude_none=True).encode()


def decode_problem(status: int, body: bytes) -> Problem:
    """Reads an error's body. Never raises: a proxy in between may have answered with anything."""
    try:
        read = ProblemBody.model_validate_json(body)
    except ValidationError:
        text = " ".join(body[:200].decode(errors="replace").split())
        return Problem(status, text or f"HTTP {status} without a body")
    return Problem(status, read.detail, read.field)
