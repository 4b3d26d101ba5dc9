#!/usr/bin/env python
"""The README's first example in the size of a real step, measured on two serial devices, and a picture of it.

    python tests/benchmarks/scripts/two_towers.py --devices cores:2  # measures; with nothing else on the machine
    python tests/benchmarks/scripts/two_towers.py --picture  # draws what was measured last

A training step of six dense layers, written by hand for two towers, against the same step within
``harness.colocate_gradients``. The picture shows on which device the matrix products of each ran, from traces.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# The repository's own package, whether it is installed or not.
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

_FOLDER = Path(__file__).resolve().parents[3] / "docs" / "pictures"
RESULTS, PICTURE = _FOLDER / "two_towers.json", _FOLDER / "two_towers.svg"
_LAYERS, _UNITS, _ROWS = 6, 512, 8192
#: A step is 6 products forward and 11 backward (the first layer's input needs no gradient). By hand the 11 run on one
#: device: (3 + 11) / (3 + 5.5) = 1.65. That the activations of the other device need not come to it is not counted.
PRODUCTS = 14 / 8.5
SIDES = ("by hand", "with colocate_gradients")


def steps(devices: Any) -> dict[str, Callable[[], Any]]:
    """The training step by hand, and the same within the context, each with weights of its own."""
    import tensorflow as tf

    import harness

    def by_hand() -> Callable[[], Any]:
        with tf.device(devices[0].name):
            weights = [
                tf.Variable(tf.random.stateless_normal((_UNITS, _UNITS), (0, seed)) * _UNITS**-0.5)
                for seed in range(_LAYERS)
            ]
            batch = tf.Variable(tf.random.stateless_normal((_ROWS, _UNITS), (1, 1)), trainable=False)

        def step() -> Any:
            with tf.device(devices[0].name):
                with tf.GradientTape() as tape:
                    results = []
                    for device, x in zip(devices, tf.split(batch.read_value(), len(devices)), strict=True):
                        with tf.device(device.name):
                            for w in weights:
                                x = tf.tanh(tf.matmul(x, w))
                            results.append(x)
                    loss = tf.reduce_mean(tf.concat(results, axis=0) ** 2)
                for w, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
                    w.assign_sub(0.1 * gradient)
                return loss

        return step

    compiled: Callable[..., Callable[[], Any]] = tf.function
    return {
        SIDES[0]: compiled(by_hand(), autograph=False),
        SIDES[1]: compiled(harness.colocate_gradients(by_hand()), autograph=False),
    }


def products(devices: Any) -> dict[str, list[list[int]]]:
    """How many matrix products of each side ran on each device: forward and backward."""
    import harness

    found = {}
    for name, step in steps(devices).items():
        step()
        counted = Counter((op.device, op.role) for op in harness.trace(step).ops if "MatMul" in op.type)
        found[name] = [[counted[device.parsed, role] for role in ("forward", "gradient")] for device in devices]
    return found


def measure(spec: str, budget_s: float) -> dict[str, Any]:
    """Where the matrix products of both sides run, and how much faster the second one is."""
    import harness
    from harness.speed.estimate import log_speedup

    devices = harness.configure(spec)
    by_hand, colocated = steps(devices).values()
    record = harness.measure_speedup(by_hand, colocated, devices=devices, budget_s=budget_s)
    found = {
        figure: math.exp(log_speedup(record.single_ns, record.parallel_ns, figure).value)
        for figure in ("fastest", "typical")
    }
    return {"devices": spec, "pairs": len(record.single_ns), "speedup": found, "products": products(devices)}


def draw(found: Mapping[str, Any], picture: Path) -> None:
    """Two rows of bars for each side: the matrix products of each device, forward and backward."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    mpl.rcParams["svg.fonttype"] = "none"
    mpl.rcParams["svg.hashsalt"] = "two towers"
    figure = Figure(figsize=(8.0, 2.9), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    labels: list[str] = []
    heights: list[float] = []
    for block, side in enumerate(SIDES):
        for place, (forward, backward) in enumerate(found["products"][side]):
            height = block * 2.8 + place
            axes.barh(height, forward, color="#56B4E9", label="forward" if not heights else None)
            axes.barh(height, backward, left=forward, color="#D55E00", label="backward" if not heights else None)
            labels.append(f"device {place}")
            heights.append(height)
        busiest = max(sum(place) for place in found["products"][side])
        note = "" if block == 0 else f": {found['speedup']['typical']:.2f} times as fast"
        axes.text(0, block * 2.8 - 0.62, f"{side}{note}", fontweight="bold", va="bottom")
        axes.plot([busiest] * 2, [block * 2.8 - 0.5, block * 2.8 + 1.5], color="0.3", linewidth=1)
    axes.set_yticks(heights, labels)
    axes.set_ylim(max(heights) + 0.6, -1.3)
    axes.set_xlabel("matrix products of a training step")
    axes.legend(loc="lower right", frameon=False)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, metadata={"Date": None})


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default="cores:2", help="two serial devices: cores:2 or softgpu:2")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of measuring")
    parser.add_argument("--picture", action="store_true", help=f"draw {PICTURE.name} from {RESULTS.name}")
    options = parser.parse_args()
    if options.picture:
        draw(json.loads(RESULTS.read_text()), PICTURE)
        return
    found = measure(options.devices, options.budget)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    sys.stdout.write(f"{json.dumps(found)}\nby the matrix products {PRODUCTS:.2f}\n")


if __name__ == "__main__":
    main()
