"""What the driver reports of this machine's cards, asked in a process of its own: a driver may never answer."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys

from harness.devices import nvidia
from harness.records import Card
from harness.runner.messages import plain
from harness.stored import validated

_END_S = 1.0
_PROGRAM = "from harness.fleet.driver_cards import main; main()"


def ask(limit_s: float) -> tuple[tuple[Card, ...], str | None]:
    """Return the cards, and why the driver does not answer. Nothing waits for longer than ``limit_s`` seconds."""
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        text, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        if process.stdout is not None:
            process.stdout.close()
        # A process that hangs in the kernel does not end: it is not waited for.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
        return (), f"no answer within {limit_s:g} s"
    if process.returncode:
        return (), f"asking it ended with exit code {process.returncode}"
    answer = json.loads(text)
    return validated(answer["cards"], tuple[Card, ...]), answer["error"]


def main() -> None:
    """Print the cards as JSON."""
    cards = [
        Card(f"GPU {card.index}", card.name, None, card.index, card.uuid, card.pci, kind="GPU", serial=card.serial)
        for card in nvidia.read_cards()
    ]
    cards += [
        Card(f"GPU {card.index}", "GPU", None, card.index, card.uuid, card.pci, kind="GPU", error=card.error)
        for card in nvidia.silent_cards()
    ]
    print(json.dumps({"cards": plain(cards), "error": nvidia.nvml_error()}))  # noqa: T201 - its output is the answer
