"""Generated programs in stages, and generated sets of models: not one finding.

HYPOTHESIS_PROFILE=ci runs 15 of each, =long 300.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st

from harness import Devices, Verdict, Verification, strategies
from harness.checks.ensembles import verify_models
from harness.checks.model_parallel import verify_staged

EXAMPLES = {"dev": 5, "ci": 15, "long": 300}[os.environ.get("HYPOTHESIS_PROFILE", "dev")]
#: Other examples for each number.
SEED = 1000 * int(os.environ.get("HARNESS_PROGRAMS_SEED", "0"))


def staged(devices: Devices) -> st.SearchStrategy[Any]:
    return strategies.staged_programs(max_stages=len(devices))


def sets_of_models(devices: Devices) -> st.SearchStrategy[Any]:
    return strategies.models(max_models=len(devices))


@pytest.mark.parametrize(
    ("strategy", "verify", "size"),
    [
        (staged, verify_staged, lambda example: len(example.bounds)),
        (sets_of_models, verify_models, lambda example: len(example.seeds)),
    ],
    ids=["pipeline", "ensemble"],
)
def test_generated_examples_of_a_pattern_give_no_finding(
    devices: Devices,
    strategy: Callable[[Devices], st.SearchStrategy[Any]],
    verify: Callable[[Any, Devices], Verification],
    size: Callable[[Any], int],
) -> None:
    verdicts: Counter[Verdict] = Counter()
    sizes: Counter[int] = Counter()

    def check(example: Any) -> None:
        found = verify(example, devices)
        assert not found.findings, f"{found}\n{example!r}"
        verdicts[found.verdict] += 1
        sizes[size(example)] += 1

    exploration = strategies.explore(check, strategy(devices), examples=EXAMPLES, seed=SEED + len(devices))
    if exploration.failure is not None:
        raise exploration.failure.error
    assert exploration.examples == EXAMPLES
    # Batches of 0 rows have no values, so that they prove nothing.
    assert verdicts[Verdict.PASS] >= EXAMPLES * 0.7
    assert verdicts[Verdict.PASS] + verdicts[Verdict.UNKNOWN] == EXAMPLES
    assert max(sizes) > 1 or len(devices) == 1
    print(f"{EXAMPLES} examples, by number of devices: {dict(sorted(sizes.items()))}")


def test_a_staged_program_is_cut_where_no_variable_is_read_on_both_sides() -> None:
    for example in strategies.sample(strategies.staged_programs(max_stages=4, min_stages=2), 30):
        names = {variable.name for variable in example.program.variables}
        reads = [
            {name for step in example.program.steps[first:end] for name in step.reads} & names
            for first, end in example.bounds
        ]
        assert len(reads) >= 2
        assert sum(map(len, reads)) == len(set().union(*reads))
        assert eval(repr(example), vars(strategies)) == example
