"""``harness explain``: what a kind of finding means, its usual causes, and what to do."""

from __future__ import annotations

import textwrap
from typing import Annotated

import typer

from harness.cli.errors import clear_errors
from harness.errors import UsageError
from harness.finding_kinds import KINDS, find_kind

_WIDTH = 100


def explain(
    code: Annotated[
        str | None, typer.Argument(metavar="CODE", help="A code such as H202, or a name such as gradient-placement.")
    ] = None,
) -> None:
    """Explain a kind of finding: what it means, an example, the usual causes, and what to do.

    Without CODE, list all kinds.
    """
    if code is None:
        for kind in KINDS.values():
            typer.echo(_wrapped(f"{kind.code} {kind.name}", kind.meaning))
        return
    with clear_errors():
        found = find_kind(code)
        if found is None:
            first, *_, last = KINDS.values()
            raise UsageError(
                f"no kind of finding has the code or name {code!r}; accepted: {first.code} to {last.code}, or a name; "
                "`harness explain` lists them"
            )
    typer.echo(f"{found.code} {found.name}\n")
    parts = {"meaning": found.meaning, "example": found.example, "causes": found.causes, "what to do": found.remedy}
    for title, text in parts.items():
        typer.echo(_wrapped(title, text))


def _wrapped(title: str, text: str) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent=f"{title}: ", subsequent_indent="    ")
