"""Many processes that write into one store: ``test_fleet_store.py`` runs :func:`write_all` in a fresh process."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import simulated_fleet as simulated

from harness.fleet.index import load
from harness.fleet.store import Store
from harness.records import Host
from harness.report.storage import json_text

#: Processes, and the writers in each: together 2,000.
WRITERS, EACH = 16, 125
_SMALL = replace(simulated.sound(0, random.Random(0)), cards=(), results=())


def text_of(number: int) -> str:
    """A small record, as text: that of a machine of its own."""
    return json_text(replace(_SMALL, host=Host(f"n{number}")))


def write(folder: Path, writer: int) -> None:
    """Add the results of 125 machines at once, and one that all processes add; two also read what is there so far."""
    texts = [text_of(number) for number in (*range(writer * EACH, (writer + 1) * EACH), 0)]
    together = threading.Barrier(len(texts))

    def add(text: str) -> None:
        together.wait()
        Store(folder).add(text)

    with ThreadPoolExecutor(len(texts)) as threads:
        list(threads.map(add, texts))
    if writer < 2:
        load(Store(folder))


def write_all() -> None:
    """Write from 16 processes, each with 125 writers.

    Where ``KILLED`` is set, kill each at a moment of its own, once the first record is there.
    """
    folder, killed = Path(os.environ["STORE"]), bool(os.environ.get("KILLED"))
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=write, args=(folder, writer)) for writer in range(WRITERS)]
    for process in processes:
        process.start()
    while killed and not any(folder.rglob("*.run.json")):
        time.sleep(0.01)
    for place, process in enumerate(processes):
        if killed:
            time.sleep(random.Random(place).uniform(0, 0.05))
            process.kill()
        process.join()
        assert process.exitcode in ((0, -signal.SIGKILL) if killed else (0,))
