"""Pairs that have to be proved, near-misses that must not be, and what a proof says."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from mutants import holes, mutants
from near_misses import NEAR_MISSES
from pairs_of_loops_and_shards import PAIRS
from proof_pairs import array, variable

from harness import Devices, UsageError, Verdict, prove, verify

pytestmark = [pytest.mark.devices(min=4), pytest.mark.usefixtures("devices")]
#: Right, and not proved so far.
_OPEN = {"attention_heads", "mapped_rows"}


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


def test_no_mutant_is_proved_and_different(devices: Devices) -> None:
    names = [
        "dense, by hand",
        "attention, by hand",
        "synchronised_batch_norm",
        "rows_and_columns",
        "ring_of_partial_sums",
    ]
    wrong = {
        f"{name}: {mutant.changed}": found
        for name, mutant, pair in mutants(names, devices, 40, 3)
        if (found := holes(pair, mutant)[0])
    }
    assert not wrong


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


def test_a_refutation_says_why() -> None:
    w = variable(5, 3)

    def loss(x: Any) -> Any:
        return tf.reduce_mean(tf.square(x @ w))

    def halves(x: Any) -> Any:
        return (loss(x[:3]) + loss(x[3:])) / 2.0

    def short(x: Any) -> Any:
        return tf.add_n([tf.reduce_sum(tf.square(part @ w)) for part in tf.split(x, 4)[:3]]) / 24.0

    inputs = {"x": array(8, 5)}
    (uneven,), (less,), (more,) = (prove(fn, loss, inputs).results for fn in (halves, short, lambda x: loss(x) * 4.0))
    assert (uneven.why, uneven.refuted) == ("shards have the weights 1/18 and 1/30", True)
    assert (less.why, less.refuted) == ("only rows [0, 6) of 8 are summed", True)
    assert (more.why, more.refuted) == ("4 times the reference's", True)
    assert less.place.startswith("tests/proof/test_proof.py:")


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
    untried = verify(towers, model, inputs, devices=devices, modes=["graph"])
    assert untried.proof is None
    assert untried.reason.startswith("the run on")
    with pytest.raises(UsageError, match="prove='maybe'"):
        verify(towers, model, inputs, devices=devices, prove="maybe")


def test_an_error_within_a_proof_is_no_finding(devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("a rule is wrong")

    monkeypatch.setattr("harness.judgement.proving.examine", broken)
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
