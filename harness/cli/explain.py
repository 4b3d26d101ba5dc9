"""``harness explain``: what a kind of finding, or a cause, means, and what to do."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.errors import clear_errors
from harness.errors import UsageError
from harness.finding_kinds import KINDS, find_kind

if TYPE_CHECKING:
    from harness.judgement.diagnosis.looks import Look
    from harness.judgement.diagnosis.rule import Rule

_WIDTH = 100


def explain(
    code: Annotated[
        str | None,
        typer.Argument(metavar="CODE", help="A code such as H202 or C101, or a name such as gradient-placement."),
    ] = None,
) -> None:
    """Explain a kind of finding, or a cause of results that differ: what it means, and what to do.

    Without CODE, list all of them.
    """
    if code is None:
        for kind in KINDS.values():
            typer.echo(_wrapped(f"{kind.code} {kind.name}", kind.meaning))
        typer.echo("\nCauses of results that differ (H104 and H105):")
        for each in sorted(_rules(), key=lambda rule: rule.code):
            typer.echo(_wrapped(f"{each.code} {each.name}", each.meaning))
        return
    with clear_errors():
        if (rule := _rule(code)) is not None:
            typer.echo(f"{rule.code} {rule.name}\n")
            typer.echo(_wrapped("a cause of results that differ", rule.meaning))
            if excluded := getattr(rule, "excluded", ""):
                typer.echo(_wrapped("what `Ruled out` calls it", excluded))
            return
        found = find_kind(code)
        if found is None:
            kinds, causes = ([each.code for each in table] for table in (KINDS.values(), _rules()))
            raise UsageError(
                f"no kind of finding and no cause has the code or name {code!r}; accepted: {kinds[0]} to {kinds[-1]}, "
                f"{min(causes)} to {max(causes)}, or a name; `harness explain` lists them"
            )
    typer.echo(f"{found.code} {found.name}\n")
    parts = {"meaning": found.meaning, "example": found.example, "causes": found.causes, "what to do": found.remedy}
    for title, text in parts.items():
        typer.echo(_wrapped(title, text))


def _rules() -> list[Rule | Look]:
    from harness.judgement.diagnosis.looks import LOOKS
    from harness.judgement.diagnosis.rules.table import RULES

    return [*RULES, *LOOKS]


def _rule(code: str) -> Rule | Look | None:
    """The cause with this code or name."""
    wanted = code.strip().lower()
    return next((rule for rule in _rules() if wanted in (rule.code.lower(), rule.name)), None)


def _wrapped(title: str, text: str) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent=f"{title}: ", subsequent_indent="    ")
