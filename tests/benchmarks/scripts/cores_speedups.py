#!/usr/bin/env python
"""Two speedups on two serial devices, each from twenty processes, and a picture of them.

    python tests/benchmarks/scripts/cores_speedups.py  # about seven minutes, with nothing else on the machine
    python tests/benchmarks/scripts/cores_speedups.py --picture docs/pictures/gradients.png
    python tests/benchmarks/scripts/cores_speedups.py --devices cores:2,softgpu:2  # each run on one, then on the other

``A^n + B^n`` on two devices against one of them, and a training step whose gradients are taken beside their forward ops
against the same step with a tape outside of the scopes, whose gradients all run on the first device. What a process
measured is kept in a file of its own; where files are there already, only those that are missing are made.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median, stdev

# The repository's own package, whether it is installed or not.
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

_TESTS = "tests/benchmarks/speedups"
#: Part of the benchmark's name: what it is called in the picture, and the most that two devices can give.
#:
#: Of 6 layers, a step is 6 products forward and 11 backward (the first layer's input needs no gradient). With a tape
#: outside, the 11 run on one device: (3 + 11) / (3 + 5.5) = 1.65.
WHAT = {
    "powers_of_one_matrix": ("A\u207f + B\u207f on two devices, against one", 2.0),
    "tape_outside": ("training step, gradients beside their forward ops,\nagainst all of them on one device", 14 / 8.5),
}
Speedups = Mapping[str, Mapping[str, Sequence[float]]]


def measured(folder: Path, specs: Sequence[str], runs: int, budget_s: float) -> Mapping[str, Speedups]:
    """Both figures of each benchmark on each set of devices, one value a run. The sets take turns."""
    from harness.speed.baseline import read_run
    from harness.speed.command import measure
    from harness.speed.estimate import FIGURES, log_speedup

    chosen = ("-m", "pytest", _TESTS, "-k", " or ".join(WHAT), f"--harness-speedup-budget={budget_s}")
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, dict[str, list[float]]]] = {
        spec: {name: {figure: [] for figure in FIGURES} for name in WHAT} for spec in specs
    }
    for number in range(1, runs + 1):
        for spec in specs:
            file = folder / f"{spec.replace(':', '-')}-{number:03}.json"
            command = (sys.executable, *chosen, f"--harness-devices={spec}")
            run = read_run(file) if file.exists() else measure(command, file)
            for full_name, record in run.records.items():
                name = next(part for part in WHAT if part in full_name)
                for figure in FIGURES:
                    value = log_speedup(record.single_ns, record.parallel_ns, figure).value
                    found[spec][name][figure].append(math.exp(value))
        sys.stdout.write(f"run {number} of {runs}\n")
        sys.stdout.flush()
    return found


def draw(speedups: Speedups, picture: Path) -> None:
    """A dot a run, the median of all, and the most that there can be."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 2.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for row, (name, (_, most)) in enumerate(WHAT.items()):
        values = speedups[name]["fastest"]
        # Side by side where they are equal, so that each is seen.
        heights = [row + 0.16 * ((index % 5) / 2 - 1) for index in range(len(values))]
        axes.plot(values, heights, "o", color="#0072B2", alpha=0.5, markersize=5)
        axes.plot([median(values)] * 2, [row - 0.3, row + 0.3], color="#0072B2")
        axes.plot([most] * 2, [row - 0.3, row + 0.3], color="0.5", linestyle="--")
        axes.annotate(f"{median(values):.2f}", (median(values), row - 0.34), ha="center", va="bottom")
        axes.annotate(
            f"at most {most:.2f}", (most, row), xytext=(4, 0), textcoords="offset points", va="center", color="0.4"
        )
    axes.set_yticks(range(len(WHAT)), [words for words, _ in WHAT.values()])
    axes.set_ylim(len(WHAT) - 0.4, -0.7)
    axes.set_xlim(1.0, 2.3)
    axes.set_xlabel("times as fast (fastest calls); a dot is a process")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=150)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--devices", default="cores:2", help="a spec, or several with commas; the picture shows the first"
    )
    parser.add_argument("--runs", type=int, default=20, help="processes")
    parser.add_argument("--budget", type=float, default=6.0, help="seconds that a benchmark is measured in each")
    parser.add_argument("--results", type=Path, default=Path("profiles/benchmarks/cores_speedups"), help="folder")
    parser.add_argument("--picture", type=Path, help="where to draw it")
    options = parser.parse_args()
    specs = options.devices.split(",")
    speedups = measured(options.results, specs, options.runs, options.budget)
    for name, (words, most) in WHAT.items():
        for spec in specs:
            for figure, values in speedups[spec][name].items():
                spread = f"standard deviation {stdev(values) / median(values):.1%} of {len(values)} runs"
                said = f"{median(values):.3f} (at most {most:.2f}), {spread}"
                sys.stdout.write(f"{spec}: {' '.join(words.split())}, {figure} calls: {said}\n")
    if options.picture is not None:
        draw(speedups[specs[0]], options.picture)


if __name__ == "__main__":
    main()
