"""Pairs that have to be proved, near-misses that must not be, and what a proof says."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import forks
import numpy as np
import pytest
import tensorflow as tf
from changed_graphs import NOWHERE, Mutant
from mutants import Subject, mutants, tried
from near_misses_of_kinds import NEAR_MISSES
from pairs_of_loops_and_shards import PAIRS
from proof_pairs import array, variable
from variants import number_of_commit

from harness import Devices, UsageError, Verdict, make_parallel, prove, verify
from harness.judgement.proving import is_rounding
from harness.judgement.runs import Program
from harness.proof.claim import Proof, ProofResult
from harness.proof.evaluation import axis_of
from harness.proof.rules.table import TABLE
from harness.proof.sizes import Unprovable

pytestmark = [pytest.mark.devices(min=4), pytest.mark.usefixtures("devices")]
#: Right, and not proved so far.
_OPEN = {"attention_heads", "mapped_rows"}
#: Of which mutants are tried quickly.
_SMALL = [
    "sgd",
    "a_loop_that_adds_up",
    "embedding",
    "masked_mean",
    "largest_over_shards",
    "log_of_a_sum_of_exponentials",
    "accumulated_gradients",
    "copies_of_the_weights",
    "momentum",
    "stateless_dropout_drawn_once",
    "read_after_an_update",
    "integers",
    "a_custom_gradient",
    "a_branch_on_a_variable",
    "gradients_through_a_branch",
    "a_loss_of_one_of_two_kinds",
    "expert_choice_by_mask",
    "ring_of_partial_sums",
    "rows_and_columns",
    "einsum_over_shards",
    "batch_norm_in_inference",
    "contraction_over_features",
]


@pytest.mark.cases(10)
@pytest.mark.parametrize("name", [name for name in PAIRS if name not in _OPEN])
def test_programs_that_compute_the_same_are_proved(devices: Devices, name: str) -> None:
    pair = PAIRS[name](devices)
    proof = prove(
        pair.parallel,
        pair.reference,
        pair.inputs,
        variables=pair.variables,
        gradients=pair.gradients,
        same=pair.same,
    )
    assert proof.proved, str(proof)
    # Its shards are of any size, and may be empty.
    assert proof.scope == "every batch size" or not name.endswith("make_parallel")


@pytest.mark.cases(12)
@pytest.mark.parametrize("name", NEAR_MISSES)
def test_programs_that_differ_are_not_proved(name: str) -> None:
    pair = NEAR_MISSES[name](variable(5, 5))
    proof = prove(
        tf.autograph.experimental.do_not_convert(pair.parallel),
        tf.autograph.experimental.do_not_convert(pair.reference),
        pair.inputs,
        variables=pair.variables,
        gradients=pair.gradients,
        same=pair.same,
    )
    assert not proof.proved


def _holes(names: list[str], devices: Devices, count: int, seed: int) -> dict[str, list[str]]:
    """The mutants with results that are proved and differ."""
    found = {}
    for _, subject, mutant in mutants(names, devices, count, seed):
        judged = subject.holes(mutant)
        if judged is not None and judged[0]:
            found[f"{subject.name}: {mutant.changed} (seed {seed})"] = judged[0]
    return found


def test_no_mutant_is_proved_and_different(devices: Devices) -> None:
    assert not _holes(["sgd"], devices, 10, 3)
    assert not _holes(["a_loop_that_adds_up"], devices, 10, 3)


@pytest.mark.variant
@pytest.mark.parametrize("case", range(10))
def test_none_of_these_500_mutants_is_proved_and_different(case: int) -> None:
    """Others in each commit."""
    number = 10 * number_of_commit() + case
    with forks.forking():
        tally = tried(50, number, [_SMALL[number % len(_SMALL)]])
    assert tally.kinds
    assert not tally.holes


def test_a_graph_that_is_copied_is_proved_as_it_was(devices: Devices) -> None:
    for name in ("nested_functions", "a_loop_that_adds_up", "momentum"):
        subject = Subject.of(name, PAIRS[name](devices), any_batch=False)
        assert subject.proof(Mutant(subject.graphs[0], NOWHERE, "none", 0).proved()).proved, name


def test_a_hole_in_a_rule_is_seen(devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule by which 2 x is x: mutants that scale something are proved and differ."""
    monkeypatch.setitem(TABLE, "Mul", lambda ev, op, x, y: ev.alg.broadcast(x if x.shape else y, op.outputs[0].shape))
    assert _holes(["sgd"], devices, 12, 3)


def test_a_proof_says_for_which_batch_sizes(devices: Devices) -> None:
    w = variable(5, 3)

    def model(x: Any) -> Any:
        return tf.tanh(x @ w)

    def towers(x: Any) -> Any:
        return tf.concat([model(part) for part in tf.split(x, 4)], 0)

    def uneven(x: Any) -> Any:
        return tf.concat([model(part) for part in tf.split(x, [3, 5])], 0)

    def by_hand(x: Any) -> Any:
        middle = tf.shape(x)[0] // 2
        return tf.concat([model(x[:middle]), model(x[middle:])], 0)

    inputs = {"x": array(8, 5)}
    scopes = [prove(fn, model, inputs).scope for fn in (towers, uneven, by_hand)]
    assert scopes == ["every batch that 4 divides", "these shapes", "every batch size"]


def test_a_program_that_only_fails_for_small_batches_is_not_proved_for_every_batch_size() -> None:
    def parallel(x: Any) -> Any:
        rows = tf.shape(x)[0]
        return tf.cond(rows > 2, lambda: x * 2.0, lambda: x * 3.0)

    proof = prove(parallel, lambda x: x * 2.0, {"x": array(8, 5)})
    assert proof.proved
    assert proof.scope == "these shapes"


def test_gradients_that_tensorflow_cannot_take_are_only_missing_where_nobody_asks_for_them(devices: Devices) -> None:
    w = variable(4, 4)

    def step(model: Any, x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x))
        return tape.gradient(loss, w)

    model = lambda x: tf.tanh(x @ w)
    programs = lambda x: step(tf.recompute_grad(model), x), lambda x: step(model, x)
    proof = prove(*programs, {"x": array(8, 4)}, variables=[w])
    assert proof.proved
    assert [each.name for each in proof.results] == ["output"]
    with pytest.raises(NotImplementedError, match="recompute_grad"):
        prove(*programs, {"x": array(8, 4)}, variables=[w], gradients=True)


def test_a_refutation_says_why() -> None:
    w = variable(5, 3)

    def loss(x: Any) -> Any:
        return tf.reduce_mean(tf.square(x @ w))

    def halves(x: Any) -> Any:
        return (loss(x[:3]) + loss(x[3:])) / 2.0

    def short(x: Any) -> Any:
        return tf.add_n([tf.reduce_sum(tf.square(part @ w)) for part in tf.split(x, 4)[:3]]) / 24.0

    def again(x: Any) -> Any:
        return loss(x) + loss(x[2:4])

    inputs = {"x": array(8, 5)}
    (uneven,), (less,), (more,), (added,) = (
        prove(fn, loss, inputs).results for fn in (halves, short, lambda x: loss(x) * 4.0, again)
    )
    assert (uneven.why, uneven.refuted) == ("shards have the weights 1/18 and 1/30", True)
    assert (less.why, less.refuted) == ("only rows [0, 6) of 8 are summed", True)
    assert (more.why, more.refuted) == ("4 times the reference's", True)
    assert (added.why, added.refuted) == ("rows [2, 4) of 8 have another weight than the others", True)
    assert less.place.startswith("tests/proof/test_proof.py:")


def test_a_refutation_stands_first_where_no_known_cause_gives_the_numbers(devices: Devices) -> None:
    w = variable(5, 3)

    def loss(x: Any) -> Any:
        return tf.reduce_sum(tf.square(x @ w)) / 8.0

    def weighted(x: Any) -> Any:
        total = []
        for device, part, weight in zip(devices, (x[:2], x[2:5], x[5:]), (1 / 4, 1 / 8, 1 / 24), strict=False):
            with tf.device(device.name):
                total.append(weight * tf.reduce_sum(tf.square(part @ w)))
        return tf.add_n(total)

    options: dict[str, Any] = {"devices": devices[:3], "modes": ["graph"]}
    verification = verify(weighted, loss, {"x": array(8, 5)}, **options)
    assert verification.verdict is Verdict.FAIL
    assert verification.reason.startswith(
        "Output: shards have the weights 1/4, 1/8 and 1/24 (tests/proof/test_proof.py:"
    )
    assert "output: refuted: shards have" in "\n".join(verification.lines(everything=True))
    # On these rows both compute the same, and on others they do not.
    same_rows = verify(weighted, loss, {"x": tf.ones([8, 5])}, **options)
    assert same_rows.verdict is Verdict.FAIL
    assert same_rows.reason.startswith("With these numbers the results agree; with others they do not: "), same_rows


def test_what_is_assumed_is_said_and_nothing_else_is_assumed() -> None:
    a, b = variable(5, 3, name="a"), variable(5, 3, name="b")
    inputs = {"x": array(8, 5)}
    assert not prove(lambda x: x @ a, lambda x: x @ b, inputs).proved
    proof = prove(lambda x: x @ a, lambda x: x @ b, inputs, same=[(a, b)])
    assert proof.proved
    assert proof.assumed == ("real arithmetic", "a:0 and b:0 start equal")
    with pytest.raises(TypeError, match="no truth value"):
        bool(proof)


def test_arguments_are_checked() -> None:
    with pytest.raises(UsageError, match="parallel=1 is not callable"):
        prove(1, len, {})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="inputs="):
        prove(len, len, [])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="same="):
        prove(len, len, {}, same=[(1, 2)])


def test_verify_says_what_is_proved_and_what_was_tested(devices: Devices) -> None:
    def model(x: Any) -> Any:
        return tf.tanh(x)

    def towers(x: Any) -> Any:
        results = []
        for device, rows in zip(devices, tf.split(x, len(devices)), strict=True):
            with tf.device(device.name):
                results.append(model(rows))
        return tf.concat(results, 0)

    def another_form(x: Any) -> Any:
        return towers(x), 1 - 2 / (1 + tf.exp(2 * towers(x)))

    inputs = {"x": array(4 * len(devices), 5)}
    proved = verify(towers, model, inputs, devices=devices, modes=["graph"], prove=True)
    assert proved.verdict is Verdict.PASS
    assert "proved for every batch that" in proved.reason
    assert proved.proof is not None
    assert proved.proof.proved
    partly = verify(
        another_form, lambda x: (model(x), tf.tanh(model(x))), inputs, devices=devices, modes=["graph"], prove=True
    )
    assert partly.verdict is Verdict.PASS
    assert "1 of 2 results proved; 1 tested" in partly.reason
    required = verify(
        another_form,
        lambda x: (model(x), tf.tanh(model(x))),
        inputs,
        devices=devices,
        modes=["graph"],
        prove="required",
    )
    assert required.verdict is Verdict.FAIL
    assert required.reason.startswith("a proof is required: 1 of 2 results proved")
    of_one_graph = verify(towers, model, inputs, devices=devices, modes=["eager", "graph"])
    assert of_one_graph.reason.startswith("proved for every input of these shapes (1 of 1 result), and every op ran")
    of_two_graphs = verify(towers, model, inputs, devices=devices, modes=["graph", "dynamic"])
    assert "proved for every batch that" in of_two_graphs.reason
    untried = verify(towers, model, inputs, devices=devices, modes=["graph"], prove=False)
    assert untried.proof is None
    assert untried.reason.startswith("the run on")
    with pytest.raises(UsageError, match="prove='maybe'"):
        verify(towers, model, inputs, devices=devices, prove="maybe")


def test_verify_proves_gradients_for_every_batch_size(devices: Devices) -> None:
    model = tf.nn.softmax
    proof = verify(make_parallel(model, devices), model, {"logits": array(9, 3)}, gradients=True, prove=True).proof
    assert proof is not None
    assert len(proof.results) == 2
    assert proof.scope == "every batch size"


def test_what_is_joined_too_deep_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: Any) -> Any:
        return tf.tanh(x)

    def endless(*args: Any) -> Any:
        return endless(*args)

    monkeypatch.setattr("harness.proof.claim._compared", endless)
    proof = prove(program, program, {"x": array(8, 5)})
    assert not proof.proved
    assert proof.error == proof.results[0].why == "operations that are joined too deep"


def test_what_is_proved_and_off_by_rounding_is_a_warning(devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a tolerance of 0, so that rounding is beyond it."""
    monkeypatch.setattr("harness.judgement.values._FREE_ULPS", 0.0)
    monkeypatch.setattr("harness.judgement.values._Errors.measured", lambda *_: lambda block: 0.0 * block.magnitude)
    w = variable(50, 3)

    def loss(x: Any) -> Any:
        return tf.reduce_sum(tf.square(x @ w), 0)

    def towers(x: Any) -> Any:
        parts = []
        for device, part in zip(devices, tf.split(x, len(devices)), strict=True):
            with tf.device(device.name):
                parts.append(loss(part))
        return tf.add_n(parts)

    options: dict[str, Any] = {"devices": devices, "modes": ["graph"]}
    inputs = {"x": array(400, 50)}
    verification = verify(towers, loss, inputs, **options)
    assert verification.verdict is Verdict.WARN, verification
    assert "proved equal in real arithmetic, and off by at most 256 units" in verification.findings[0].message
    assert verify(towers, loss, inputs, prove=False, **options).verdict is Verdict.FAIL
    # What is further off is a failure, of which no cause in the program is named.
    monkeypatch.setattr("harness.judgement.proving._FEW_ULPS", 0.0)
    verification = verify(towers, loss, inputs, **options)
    assert verification.verdict is Verdict.FAIL, verification
    assert verification.reason.startswith("The results are proved equal in real arithmetic, so only rounding, an op's")


def test_only_what_is_proved_and_near_is_rounding() -> None:
    def judged(name: str, off: float, unsteady: bool = False, exact: frozenset[tuple[str, str]] = frozenset()) -> bool:
        want = np.linspace(-1.0, 1.0, 9, dtype="float32")
        leaf = SimpleNamespace(name=name, found=want + np.float32(off), expected=want)
        proof = Proof((ProofResult("output", True), ProofResult("other", False)))
        question: Any = SimpleNamespace(mode="graph", wrong=[leaf], unsteady=unsteady)
        return is_rounding(proof, exact, question)

    assert judged("output", 1e-5)
    assert not judged("output", 1e-4)
    assert not judged("other", 1e-5)
    assert not judged("output", 1e-5, unsteady=True)
    assert not judged("output", float("nan"))
    assert not judged("output", 1e-5, exact=frozenset({("graph", "output")}))


def test_a_copy_of_a_program_does_not_change_what_is_sent_back_in_its_graph() -> None:
    """As the runs that measure rounding make one."""
    program = Program(lambda x: tf.tanh(x), {"x": tf.ones([2, 3])}, [], gradients=True, seed=0)
    before = dict(program.upstreams("graph"))
    other = replace(program, fn=lambda x: (x, tf.nn.relu(x) + 1.0), _graphs={})
    assert len(other.upstreams("graph")) == 2
    assert program.upstreams("graph") == before
    assert {number for number, _ in before.values()} == {0}


def test_an_error_within_a_proof_is_no_finding(devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("a rule is wrong")

    monkeypatch.setattr("harness.judgement.proving.answer", broken)
    parallel = lambda x: tf.concat(
        [_on(device, part) for device, part in zip(devices, tf.split(x, len(devices)), strict=True)], 0
    )
    verification = verify(parallel, tf.tanh, {"x": array(8, 5)}, devices=devices, modes=["graph"], prove=True)
    assert verification.verdict is Verdict.PASS
    assert verification.proof is not None
    assert verification.proof.error == "RuntimeError: a rule is wrong"


def _on(device: Any, x: Any) -> Any:
    with tf.device(device.name):
        return tf.tanh(x)


def test_an_axis_that_there_is_not_is_no_other_axis() -> None:
    assert [axis_of(at, 2) for at in (-2, -1, 0, 1)] == [0, 1, 0, 1]
    for at in (-3, 2):
        with pytest.raises(Unprovable, match=f"axis {at} of 2"):
            axis_of(at, 2)
