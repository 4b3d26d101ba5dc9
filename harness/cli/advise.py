"""``harness advise``: where should a program run?"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.answers import messages
from harness.cli.endings import Ended
from harness.cli.errors import clear_errors, refuse, say
from harness.cli.options import (
    DEFAULT_REPORT,
    BatchOption,
    BuildArgument,
    DevicesOption,
    ProfilesOption,
    ReportOption,
    check_batch,
    check_report,
    check_seconds,
    check_spec,
    number,
)
from harness.errors import HarnessError, UsageError
from harness.extras import require

if TYPE_CHECKING:
    from harness.advice.record import Advice

DEFAULT_BUDGET_S = 8.0


def advise(
    target: BuildArgument,
    devices: DevicesOption = "auto",
    cards: Annotated[
        str | None,
        typer.Option("--for", metavar="CARD:N", help="Predict the times on N such cards, such as h100-sxm:8."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option("--memory-per-device", metavar="SIZE", help="The memory of a device, such as 16GiB or 80GB."),
    ] = None,
    profiles: ProfilesOption = None,
    batch: BatchOption = None,
    budget: Annotated[
        float, typer.Option("--budget", parser=number, metavar="S", help="Seconds for timing each way.")
    ] = DEFAULT_BUDGET_S,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the record as JSON; the progress goes to stderr.")
    ] = False,
    report: ReportOption = DEFAULT_REPORT,
) -> None:
    """Try the ways to run a program on the devices, and recommend one.

    Tried are one device, the CPU, make_parallel, MirroredStrategy (for a Keras model with a loss) and a pipeline (for a
    Keras model that is a chain of layers, cut by the measured time of its layers); where these are not far from the
    best, other algorithms of MirroredStrategy and other numbers of micro-batches too. A step of a compiled model is a
    training step with its loss and optimizer, of another one a forward pass. Each way is proved or verified against
    one device before it is timed; a wrong one is reported and left out. The right ones are timed against one device in
    turn. A way is recommended only if the whole interval of its speedup is above 1.

    --for verifies the ways on software GPUs, as many as the cards that are named or as this machine can hold, and
    predicts their times from the profile of the card. Nothing is measured on such a card.

    BUILD is called again for each way, with the same random seed. Prints a table, the recommendation with its limits,
    and the script of the recommended way; writes DIR/advice.json and a page, DIR/advice.html, with the scripts of all
    ways. ^C prints what is known by then.
    """
    from pydantic import TypeAdapter

    from harness.advice.built import ACCEPTED
    from harness.advice.cards import Cards
    from harness.advice.choice import with_choice
    from harness.advice.record import Advice, Way
    from harness.hardware.profile import use_profiles
    from harness.report.advice import ADVICE_FILE, print_advice
    from harness.report.publish import page_beside
    from harness.report.storage import json_text, save_json
    from harness.report.terminal import print_line, stdout_console
    from harness.runner.job import Job, WorkerFiles
    from harness.runner.target import Target
    from harness.speed.memory.sizes import parse_size

    with clear_errors():
        require("scipy")
        check_spec(devices)
        use_profiles(profiles)
        if cards is not None:
            if devices != "auto":
                raise UsageError(f"--devices {devices} cannot be combined with --for {cards}; give one of them")
            Cards.parse(cards)
        most = None if memory is None else parse_size(memory)
        check_batch(batch)
        check_seconds("--budget", budget)
        found = Target.parse(target, ACCEPTED)
        check_report(report)
        files = WorkerFiles.create(report / "logs", "advise")
    arguments: dict[str, object] = {
        "spec": devices,
        "file": str(found.path),
        "function": found.function,
        "batch": batch,
        "budget_s": budget,
        "cards": cards,
        "memory_bytes": most,
    }
    console = stdout_console()
    began = time.monotonic()
    advice = Advice(str(found), devices, "", False, "", "", None, (), complete=False, memory_bytes=most)

    def show(text: str) -> None:
        line = f"[{time.monotonic() - began:.0f} s] {text}"
        say(line) if as_json else print_line(console, line)
        console.file.flush()

    def finish() -> Advice:
        ended = with_choice(replace(advice, elapsed_s=time.monotonic() - began))
        if as_json:
            typer.echo(json_text(ended))
        else:
            print_advice(console, ended)
        with clear_errors():
            saved = save_json(ended, report, ADVICE_FILE)
            page = page_beside(report, "advice.html", lambda: _page(ended))
        said = f"{saved}{f'; page: {page}' if page else ''}"
        say(f"record: {said}") if as_json else print_line(console, f"\nRecord: {said}")
        return ended

    try:
        show("starting TensorFlow")
        with contextlib.closing(messages(Job("harness.advice.process:run", arguments), files)) as news:
            for message in news:
                if "about" in message:
                    advice = replace(advice, **message["about"])
                elif "way" in message:
                    way: Way = TypeAdapter(Way).validate_python(message["way"])
                    advice = replace(advice, ways=(*advice.ways, way))
                    show(way.sentence)
                elif "progress" in message:
                    show(str(message["progress"]))
                else:
                    advice = replace(advice, complete=True)
    except Ended:
        if advice.ways:
            finish()
        raise
    except HarnessError as error:
        if advice.ways:
            finish()
        refuse(error)
    finish()


def _page(advice: Advice) -> str:
    from harness.report.html.advice_page import advice_page

    return advice_page(advice)
