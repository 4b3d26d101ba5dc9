"""Generated programs, split over generated device sets: not one finding.

HYPOTHESIS_PROFILE=dev runs 20 of them, as plain tox does; =ci 100 (twice, on two and on four devices, as does
tox -e programs), =long 1,200 (on five device sets). HARNESS_PROGRAMS=500 runs as many.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from hypothesis import strategies as st

from harness import Devices, Verdict, VerificationError, make_parallel, strategies, verify

EXAMPLES = int(
    os.environ.get("HARNESS_PROGRAMS")
    or {"dev": 20, "ci": 100, "long": 1200}[os.environ.get("HYPOTHESIS_PROFILE", "dev")]
)
#: Other examples for each number.
SEED = 1000 * int(os.environ.get("HARNESS_PROGRAMS_SEED", "0"))


def test_generated_programs_give_no_finding(devices: Devices) -> None:
    seen: Counter[str] = Counter()
    used: Counter[int] = Counter()

    def check(example: tuple[strategies.Program, Devices]) -> None:
        program, some = example
        # A third of them in a graph that does not know its batch size: dearer, and another way through the code.
        modes = ("dynamic",) if program.seed % 3 == 0 and program.axis == 0 and program.rows else ("eager", "graph")
        built = program.build(some.host)
        verification = verify(
            make_parallel(built.fn, some, axis=program.axis, broadcast=program.broadcast),
            built.fn,
            program.inputs(),
            devices=some,
            variables=built.variables,
            gradients=program.differentiable,
            modes=modes,
            exact=program.exact or None,
        )
        assert not verification.findings, f"{verification}\n{program.script(some, modes=modes)}"
        seen[verification.verdict.value] += 1
        used[len(verification.exercised.devices)] += 1

    # GPUs have no product and no relu of integers.
    on_gpu = any(device.parsed.kind == "GPU" for device in devices)
    generated = strategies.programs(dtypes=strategies.FLOATS) if on_gpu else strategies.programs()
    exploration = strategies.explore(
        check,
        st.tuples(generated, strategies.device_sets(devices)),
        examples=EXAMPLES,
        seed=SEED + len(devices),
    )
    if exploration.failure is not None:
        raise exploration.failure.error
    assert exploration.examples == EXAMPLES
    # A program in half precision may be so ill-conditioned that its values prove nothing: it says so, and is rare.
    assert seen[Verdict.PASS.value] + seen[Verdict.UNKNOWN.value] == EXAMPLES
    assert seen[Verdict.UNKNOWN.value] <= EXAMPLES / 50
    assert len(devices) in used
    print(f"{EXAMPLES} programs, by number of devices used: {dict(sorted(used.items()))}")


def zeroes_the_last_row(
    fn: Callable[..., Any], some: Devices, *, axis: int = 0, broadcast: Sequence[str] = ()
) -> Callable[..., Any]:
    """Makes a parallel callable with a fault: the last row of each result is zero."""
    parallel = make_parallel(fn, some, axis=axis, broadcast=broadcast)

    def zero_last(leaf: Any) -> Any:
        rows = tf.shape(leaf)[axis]
        shape = [1] * leaf.shape.rank
        shape[axis] = -1
        return leaf * tf.cast(tf.reshape(tf.range(rows) < rows - 1, shape), leaf.dtype)

    def faulty(**inputs: Any) -> Any:
        return tf.nest.map_structure(zero_last, parallel(**inputs))

    return faulty


def test_a_planted_fault_is_found_made_small_and_printed_as_a_script(devices: Devices) -> None:
    def check(program: strategies.Program) -> None:
        strategies.assert_program(program, devices, make_parallel=zeroes_the_last_row, modes=("eager",))

    exploration = strategies.explore(check, strategies.programs(dtypes=("float32",)), examples=10, seed=1)
    assert exploration.failure is not None
    error = exploration.failure.error
    assert isinstance(error, VerificationError)
    assert {finding.kind for finding in error.findings} & {"value", "gradient"}
    assert len(exploration.failure.example.steps) <= 1
    text = str(error).split("Script that reproduces the failure:")[1].strip()
    assert "program = Program(" in text
    compile(text, "script", "exec")
