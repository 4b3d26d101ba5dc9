#!/usr/bin/env python
"""What ``make_parallel`` costs beyond the work, from 1 to 64 devices and from 1 to 500 variables, and a picture of it.

    python tests/benchmarks/scripts/make_parallel_cost.py  # measures on logical CPUs; two minutes of one core
    python tests/benchmarks/scripts/make_parallel_cost.py --picture  # draws what was measured last
    python tests/benchmarks/scripts/make_parallel_cost.py --model  # the graph of a step of ResNet50 on cpu:2; minutes

The work is small (16 rows of 8 numbers, a product with each variable): what is measured is the cost of calls and
graphs. By hand is a split, a loop over device scopes and a concat. Times are CPU times of the process.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

# The repository's own package, whether it is installed or not.
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

_FOLDER = Path(__file__).resolve().parents[3] / "docs" / "pictures"
RESULTS, PICTURE = _FOLDER / "make_parallel_cost.json", _FOLDER / "make_parallel_cost.svg"
DEVICES, VARIABLES = (1, 2, 4, 8, 16, 32, 64), (1, 8, 32, 125, 250, 500)
_FEW_DEVICES, _FEW_VARIABLES = 4, 8
_CALLS = 5
#: Rows and pixels along each side of the images that ResNet50 gets, and how often its graph is built each way.
_ROWS, _SIDE, _BUILDS = 8, 64, 3
Row = dict[str, float]


def steps_of(devices: Any, model: Callable[[Any], Any], x: Any, weights: Any) -> dict[str, Callable[[], Any]]:
    """A step of ``model`` with gradients for ``weights``, by ``make_parallel`` and by hand."""
    import tensorflow as tf

    import harness

    def by_hand(x: Any) -> Any:
        results = []
        for device, part in zip(devices, tf.split(x, len(devices)), strict=True):
            with tf.device(device.name):
                results.append(model(part))
        with tf.device(devices.host):
            return tf.concat(results, axis=0)

    def step_of(fn: Callable[[Any], Any]) -> Callable[[], Any]:
        def step() -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(fn(x) ** 2)
            return tape.gradient(loss, weights)

        return step

    return {"make_parallel": step_of(harness.make_parallel(model, devices)), "by hand": step_of(by_hand)}


def row(devices: Any, variables: int) -> Row:
    """Seconds and bytes of both ways: an eager step with gradients, and the building of its graph."""
    import tensorflow as tf

    weights = [tf.Variable(tf.eye(8)) for _ in range(variables)]

    def model(x: Any) -> Any:
        for w in weights:
            x = tf.matmul(x, w)
        return x

    found: Row = {"devices": len(devices), "variables": variables}
    steps = steps_of(devices, model, tf.ones([max(16, len(devices)), 8]), weights)
    for step in steps.values():
        step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(_CALLS):
        for name, step in steps.items():
            times[name].append(_seconds(step))
    for name, step in steps.items():
        found[f"{name}: build_s"], found[f"{name}: graph_bytes"] = _built(step)
        found[f"{name}: eager_s"] = median(times[name])
    return found


def model_row() -> Row:
    """Medians of the same for the graph of a step of ResNet50."""
    import tensorflow as tf

    import harness

    devices = harness.configure("cpu:2")
    model = tf.keras.applications.ResNet50(weights=None, input_shape=(_SIDE, _SIDE, 3), classes=100)
    weights = [variable.value for variable in model.trainable_variables]
    steps = steps_of(devices, lambda x: model(x, training=False), tf.ones([_ROWS, _SIDE, _SIDE, 3]), weights)
    _built(steps["by hand"])  # what TensorFlow loads at the first use
    built = [{name: _built(step) for name, step in steps.items()} for _ in range(_BUILDS)]
    found: Row = {"devices": len(devices), "variables": len(weights)}
    for name in steps:
        found[f"{name}: build_s"] = median(each[name][0] for each in built)
        found[f"{name}: graph_bytes"] = built[0][name][1]
    return found


def _built(step: Callable[[], Any]) -> tuple[float, int]:
    """Seconds to build the graph of ``step``, and its bytes."""
    import tensorflow as tf

    made: list[Any] = []
    took = _seconds(lambda: made.append(tf.function(step, autograph=False).get_concrete_function()))
    return took, len(made[0].graph.as_graph_def().SerializeToString())


def _seconds(call: Callable[[], Any]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def measure() -> list[Row]:
    """A row for each number of devices, and for each number of variables."""
    import harness

    devices = harness.configure(f"cpu:{max(DEVICES)}")
    row(devices[:2], 2)  # what TensorFlow loads at the first use
    rows = [row(devices[:count], _FEW_VARIABLES) for count in DEVICES]
    return rows + [row(devices[:_FEW_DEVICES], count) for count in VARIABLES]


def draw(rows: Sequence[Row], picture: Path) -> None:
    """The time of building a graph and of an eager step against the number of devices and of variables."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    mpl.rcParams["svg.fonttype"] = "none"
    mpl.rcParams["svg.hashsalt"] = "make_parallel"
    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    FigureCanvasSVG(figure)
    grid = figure.subplots(2, 2)
    sweeps = {
        "devices": list(rows[: len(DEVICES)]),
        "variables": list(rows[len(DEVICES) :]),
    }
    for line, (what, title) in enumerate({"build_s": "build a graph, s", "eager_s": "eager step, s"}.items()):
        for column, (sweep, points) in enumerate(sweeps.items()):
            axes = grid[line][column]
            for name, color in (("by hand", "0.5"), ("make_parallel", "#0072B2")):
                axes.plot(
                    [each[sweep] for each in points],
                    [each[f"{name}: {what}"] for each in points],
                    "o-",
                    color=color,
                    label=name,
                )
            axes.set_ylim(bottom=0)
            axes.set_xlim(left=0)
            axes.set_ylabel(title if column == 0 else "")
            others = f"{_FEW_VARIABLES} variables" if sweep == "devices" else f"{_FEW_DEVICES} devices"
            axes.set_xlabel(f"{sweep} ({others})" if line else "")
            axes.spines[["top", "right"]].set_visible(False)
    grid[0][0].legend(frameon=False)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, metadata={"Date": None})


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", action="store_true", help=f"draw {PICTURE.name} from {RESULTS.name}")
    parser.add_argument("--model", action="store_true", help="measure ResNet50 instead; nothing is saved")
    given = parser.parse_args()
    if given.picture:
        draw(json.loads(RESULTS.read_text()), PICTURE)
        return
    rows = [model_row()] if given.model else measure()
    if not given.model:
        RESULTS.write_text(json.dumps(rows, indent=1) + "\n")
    for each in rows:
        ratios = {what: f"make_parallel: {what}" for what in ("eager_s", "build_s", "graph_bytes")}
        sys.stdout.write(
            f"{each['devices']:3} devices, {each['variables']:3} variables: "
            + ", ".join(
                f"{what} {each[name] / each[f'by hand: {what}']:.2f}" for what, name in ratios.items() if name in each
            )
            + "\n"
        )


if __name__ == "__main__":
    main()
