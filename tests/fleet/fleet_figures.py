"""What a fleet costs on this machine: ``python tests/fleet/fleet_figures.py``.

The records are those of simulated machines. The times are real, and those of the machine on which it runs.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import simulated_fleet as simulated
import store_writers

from harness.fleet.index import load
from harness.fleet.store import Store
from harness.report.storage import json_text

_MACHINES = 1000
_CHROMIUM = "/usr/bin/chromium"


def harness(*arguments: str) -> tuple[float, float, float]:
    """Run the command, and return its time and processor time in seconds, and its most memory in MiB."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "harness", *arguments], stdout=subprocess.DEVNULL)
    _, _, used = os.wait4(process.pid, 0)
    return time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def opened_s(page: Path) -> float | None:
    """Return how long Chromium takes until the page is loaded and drawn; ``None`` without it."""
    if find_spec("playwright") is None or not Path(_CHROMIUM).exists():
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page()
        tab.goto("about:blank")
        began = time.perf_counter()
        tab.goto(page.as_uri())
        tab.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        took = time.perf_counter() - began
        browser.close()
    return took


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "fleet"
        for seen in simulated.fleet(1, _MACHINES, share=0.1).runs:
            Store(folder).add(json_text(seen.record))
        for what in ("first", "with the index"):
            wall, cpu, memory = harness("fleet", "report", "--store", str(folder))
            print(f"report on {_MACHINES:,} machines, {what}: {wall:.1f} s, processor {cpu:.1f} s, {memory:.0f} MiB")
        page = folder / "fleet.html"
        took = opened_s(page)
        drawn = "no Chromium" if took is None else f"drawn in {took:.2f} s"
        print(f"page: {page.stat().st_size / 1e6:.2f} MB, {drawn}")
        last = Path(made) / "run.json"
        last.write_text(json_text(simulated.sound(0, random.Random(0))), encoding="utf-8")
        print(f"prolog: {harness('fleet', 'prolog', '--last', str(last))[0]:.1f} s")
        os.environ["STORE"] = str(Path(made) / "many")
        began = time.perf_counter()
        store_writers.write_all()
        took = time.perf_counter() - began
        kept = load(Store(Path(os.environ["STORE"])))
        writers = store_writers.WRITERS * store_writers.EACH
        print(f"{writers:,} writers at once: {len(kept.runs):,} kept, {len(kept.left_out)} damaged, {took:.1f} s")
        print(json.dumps({"processors": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}))


if __name__ == "__main__":
    main()
