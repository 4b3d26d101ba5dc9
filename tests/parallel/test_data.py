from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import Devices, ShardingError, UsageError, colocate_gradients, make_parallel
from harness.judgement.runs import soft_placement

BATCHES = (0, 1, 3, 4, 10)


def rows(count: int, features: int = 3, dtype: str = "float32") -> Any:
    values = np.random.default_rng(count).normal(size=(count, features))
    return tf.constant(values.astype(dtype))


def dense(x: Any) -> Any:
    return tf.tanh(x) * 2.0


@pytest.mark.parametrize("count", BATCHES)
@pytest.mark.parametrize("mode", ["eager", "graph", "unknown batch"])
def test_results_are_those_of_one_device_whatever_the_batch(devices: Devices, count: int, mode: str) -> None:
    parallel: Callable[..., Any] = make_parallel(dense, devices)
    if mode != "eager":
        signature = [tf.TensorSpec([None, 3], tf.float32)] if mode == "unknown batch" else None
        parallel = tf.function(lambda x, call=parallel: call(x=x), input_signature=signature)
    found = parallel(x=rows(count)) if mode == "eager" else parallel(rows(count))
    np.testing.assert_allclose(found, dense(rows(count)), rtol=1e-6)
    assert found.shape == (count, 3)


def test_nests_go_in_and_come_out(devices: Devices) -> None:
    def fn(pair: Any, named: Any) -> Any:
        return {"sum": pair[0] + pair[1], "more": (named["a"] * 2.0, None)}

    x = rows(10)
    found = make_parallel(fn, devices)(pair=(x, x), named={"a": x})
    np.testing.assert_array_equal(found["sum"], x + x)
    np.testing.assert_array_equal(found["more"][0], x * 2.0)
    assert found["more"][1] is None


@pytest.mark.parametrize("graph", [False, True])
def test_arguments_can_be_given_by_position_too(devices: Devices, graph: bool) -> None:
    x, weights = rows(10), rows(3, 5)
    parallel = make_parallel(lambda x, w, y: tf.matmul(x, w) + y, devices, broadcast=("w",))
    call: Callable[..., Any] = tf.function(lambda *args, **named: parallel(*args, **named)) if graph else parallel
    y = tf.matmul(x, weights)
    for found in (call(x, weights, y), call(x, weights, y=y), call(x, y=y, w=weights)):
        np.testing.assert_allclose(found, y + y, rtol=1e-5)


def test_positional_arguments_without_a_name_are_numbered(devices: Devices) -> None:
    x = rows(10)
    layer = tf.keras.layers.Dense(4)
    np.testing.assert_allclose(make_parallel(layer, devices)(x), layer(x), rtol=1e-5)
    scaled = make_parallel(lambda *args: args[0] * args[1], devices, broadcast=("args[1]",))
    np.testing.assert_array_equal(scaled(x, 2.0), x * 2.0)
    with pytest.raises(ShardingError, match=r"broadcast=\('args\[1\]',\)"):
        make_parallel(lambda *args: args[0] * args[1], devices)(x, 2.0)


def test_an_argument_given_twice_is_refused(devices: Devices) -> None:
    with pytest.raises(TypeError, match="'x' is given twice"):
        make_parallel(dense, devices)(rows(4), x=rows(4))


def test_too_many_arguments_are_refused_by_the_function(devices: Devices) -> None:
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        make_parallel(dense, devices)(rows(4), rows(4))


def test_another_axis_is_split_where_it_is_asked_for(devices: Devices) -> None:
    x = tf.transpose(rows(10))
    found = make_parallel(lambda x: tf.cumsum(x, axis=0), devices, axis=1)(x=x)
    np.testing.assert_allclose(found, tf.cumsum(x, axis=0), rtol=1e-6)


@pytest.mark.parametrize("count", BATCHES)
@pytest.mark.parametrize("graph", [False, True])
def test_a_negative_axis_counts_from_the_last(devices: Devices, count: int, graph: bool) -> None:
    x = tf.transpose(rows(count))
    parallel: Callable[..., Any] = make_parallel(lambda x: tf.cumsum(x, axis=0), devices, axis=-1)
    call = tf.function(lambda x: parallel(x=x), input_signature=[tf.TensorSpec([3, None])]) if graph else None
    found = call(x) if call is not None else parallel(x=x)
    np.testing.assert_allclose(found, tf.cumsum(x, axis=0), rtol=1e-6)


def test_what_is_broadcast_reaches_every_shard_whole_and_gets_its_gradient(devices: Devices) -> None:
    x, weights = rows(10), rows(3, 5)
    parallel = make_parallel(lambda x, w, scale: tf.matmul(x, w) * scale, devices, broadcast=("w", "scale"))
    with tf.GradientTape() as tape:
        tape.watch(weights)
        found = parallel(x=x, w=weights, scale=2.0)
    np.testing.assert_allclose(found, tf.matmul(x, weights) * 2.0, rtol=1e-5)
    expected = tf.matmul(x, tf.ones([10, 5]) * 2.0, transpose_a=True)
    np.testing.assert_allclose(tape.gradient(found, weights), expected, rtol=1e-5)


def test_plain_arrays_and_ints_are_accepted(devices: Devices) -> None:
    found = make_parallel(lambda x, index: tf.gather(x, index, batch_dims=1), devices)(
        x=np.arange(20.0).reshape(10, 2), index=np.arange(10) % 2
    )
    np.testing.assert_array_equal(found, np.arange(20.0).reshape(10, 2)[np.arange(10), np.arange(10) % 2])


def test_a_tensor_that_the_function_closes_over_gets_its_gradient(devices: Devices) -> None:
    x, scale, held = rows(10), tf.constant([1.0, 2.0, 3.0]), {"shift": [tf.constant([0.5])]}
    fn = lambda x: tf.tanh(x * scale) * held["shift"][0]  # noqa: E731
    gradients = []
    calls: tuple[Callable[..., Any], ...] = (fn, make_parallel(fn, devices))
    for call in calls:
        with tf.GradientTape() as tape:
            tape.watch([scale, held["shift"][0]])
            found = call(x=x)
        gradients.append(tape.gradient(found, [scale, held["shift"][0]]))
    for expected, got in zip(*gradients, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)


@pytest.mark.parametrize("graph", [False, True])
def test_second_and_third_derivatives_are_those_of_one_device(devices: Devices, graph: bool) -> None:
    weights = tf.Variable(rows(3, 5))
    fn = lambda x: tf.tanh(tf.matmul(x, weights))  # noqa: E731

    def third(call: Callable[..., Any], x: Any) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as middle:
                middle.watch(x)
                with tf.GradientTape() as inner:
                    inner.watch(x)
                    y = call(x=x)
                first = inner.gradient(y, x)
            second = middle.gradient(first, x)
        return first, second, outer.gradient(second, [x, weights])

    parallel = make_parallel(fn, devices)
    run = tf.function(lambda x: third(parallel, x)) if graph else lambda x: third(parallel, x)
    x = rows(10)
    for got, expected in zip(tf.nest.flatten(run(x)), tf.nest.flatten(third(fn, x)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_a_gradient_penalty_with_dropout_uses_the_mask_of_the_forward_pass(devices: Devices) -> None:
    weights = tf.Variable(rows(3, 5))
    masks: list[Any] = []

    def fn(x: Any) -> Any:
        masks.append(tf.cast(tf.random.uniform([x.shape[0], 5]) > 0.5, tf.float32))
        return tf.tanh(tf.matmul(x, weights)) * masks[-1]

    def penalty(call: Callable[..., Any], x: Any) -> Any:
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = call(x=x)
            norm = tf.reduce_sum(inner.gradient(y, x) ** 2)
        return outer.gradient(norm, weights)

    x = rows(10)
    found = penalty(make_parallel(fn, devices), x)
    mask = tf.concat(masks, axis=0)
    expected = penalty(lambda x: tf.tanh(tf.matmul(x, weights)) * mask, x)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_keras_models_work_and_variables_of_a_first_call_are_made_once_on_the_host(devices: Devices) -> None:
    model = tf.keras.Sequential([tf.keras.layers.Dense(4, activation="tanh"), tf.keras.layers.Dense(2)])
    found = make_parallel(lambda x: model(x), devices[1:])(x=rows(10))
    assert len(model.trainable_variables) == 4
    assert all(variable.value.device.endswith("CPU:0") for variable in model.trainable_variables)
    np.testing.assert_allclose(found, model(rows(10)), rtol=1e-5, atol=1e-6)


def test_control_flow_of_the_users_function_is_converted_as_in_their_own_graph(devices: Devices) -> None:
    def fn(x: Any) -> Any:
        if tf.reduce_max(x) > 1e6:
            y = x * 0.0
        else:
            y = x + 1.0
        for _ in tf.range(3):
            y = tf.tanh(y)
        return y

    found = tf.function(lambda x: make_parallel(fn, devices)(x=x))(rows(10))
    np.testing.assert_allclose(found, fn(rows(10)), rtol=1e-5)


def test_a_scalar_per_shard_is_refused_with_what_to_return_instead(devices: Devices) -> None:
    with pytest.raises(
        ShardingError, match=r"is a scalar per shard.*return one value per row and reduce after the call"
    ):
        make_parallel(lambda x: tf.reduce_mean(x), devices)(x=rows(10))


def test_a_result_of_another_size_is_refused(devices: Devices) -> None:
    with pytest.raises(ShardingError, match="has 2 rows along axis 0 where the shard has 3"):
        make_parallel(lambda x: x[:2], devices)(x=rows(10))


def test_results_padded_to_the_longest_row_of_each_shard_are_refused(devices: Devices) -> None:
    rows = tf.ragged.constant([["a", "bb"], ["ccc"], ["d"], ["gg"]])
    some = devices[:2]
    with (
        soft_placement(),
        pytest.raises(ShardingError, match=r"shapes \[2, 2\] and \[2, 1\].*to_tensor\(shape=...\) pads all alike"),
    ):
        make_parallel(lambda rows: rows.to_tensor(), some)(rows)
    with soft_placement():  # no GPU has a kernel that pads rows
        made = make_parallel(lambda rows: rows.to_tensor(shape=(None, 2)), some)(rows)
        assert made.shape == (4, 2)
        assert make_parallel(lambda rows: rows[:, :1], some)(rows).shape[0] == 4


def test_a_result_of_another_size_is_refused_when_the_batch_size_is_known_only_in_the_graph(devices: Devices) -> None:
    parallel = make_parallel(lambda x: x[:2], devices)
    call = tf.function(lambda x: parallel(x=x), input_signature=[tf.TensorSpec([None, 3])])
    with pytest.raises(tf.errors.InvalidArgumentError, match="the output has more or fewer rows than its shard"):
        call(rows(10))


def test_arguments_of_different_sizes_are_refused_with_both_sizes(devices: Devices) -> None:
    with pytest.raises(ShardingError, match=r"differ in size along axis 0 \(x: 10, y: 9\)"):
        make_parallel(lambda x, y: x, devices)(x=rows(10), y=rows(9))


def test_arguments_of_different_sizes_are_refused_when_known_only_in_the_graph(devices: Devices) -> None:
    parallel = make_parallel(lambda x, y: x + y, devices)
    spec = tf.TensorSpec([None, 3])
    call = tf.function(lambda x, y: parallel(x=x, y=y), input_signature=[spec, spec])
    with pytest.raises(tf.errors.InvalidArgumentError, match="arguments x and y differ in size"):
        call(rows(10), rows(9))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"axis": 0.0}, r"axis=0\.0; accepted: an integer"),
        ({"broadcast": "w"}, "broadcast='w'; accepted: a sequence of names"),
        ({"broadcast": 3}, "broadcast=3; accepted: a sequence of names"),
    ],
)
def test_options_of_another_form_are_refused(devices: Devices, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ShardingError, match=message):
        make_parallel(dense, devices, **arguments)


def test_no_devices_and_no_function_are_refused(devices: Devices) -> None:
    with pytest.raises(ShardingError, match=r"devices=\(\) is empty"):
        make_parallel(dense, devices[:0])
    with pytest.raises(ShardingError, match="is not callable"):
        make_parallel(3, devices)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="fn=3 is not a function"):
        colocate_gradients(3)  # type: ignore[call-overload]


def test_arguments_that_cannot_be_split_are_refused_by_name(devices: Devices) -> None:
    parallel = make_parallel(lambda x, training: x, devices)
    with pytest.raises(ShardingError, match=r"argument training has shape \(\).*broadcast=\('training',\)"):
        parallel(x=rows(4), training=True)
    with pytest.raises(ShardingError, match="no argument to split"):
        parallel()
    with pytest.raises(ShardingError, match="the call has no argument 'w', only"):
        make_parallel(dense, devices, broadcast=("w",))(x=rows(4))
    with pytest.raises(ShardingError, match="is of type RaggedTensor"):
        make_parallel(dense, devices, axis=1)(x=tf.ragged.constant([[1.0], [2.0, 3.0]]))
    with pytest.raises(ShardingError, match="is of type SparseTensor"):
        make_parallel(dense, devices)(x=tf.sparse.from_dense(rows(4)))


@pytest.mark.cases("eager-3", "unknown batch-10")
@pytest.mark.parametrize("count", [0, 1, 3, 10])
@pytest.mark.parametrize("mode", ["eager", "graph", "unknown batch"])
def test_a_ragged_batch_is_split_by_rows(devices: Devices, count: int, mode: str) -> None:
    values = tf.RaggedTensor.from_row_lengths(rows(sum(range(count)), 2), tf.range(count, dtype=tf.int64))

    def fn(x: Any, scale: Any) -> Any:
        return {"mean": tf.reduce_sum(x, axis=1) * scale, "same": x * 2.0}

    parallel = make_parallel(fn, devices)
    scale = rows(count, 2)

    def step(x: Any, scale: Any, call: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(scale)
            found = call(x=x, scale=scale)
            loss = tf.reduce_sum(found["mean"] ** 2)
        return found, tape.gradient(loss, scale)

    run: Callable[..., Any] = step
    if mode != "eager":
        unknown = [tf.RaggedTensorSpec([None, None, 2], tf.float32, 1), tf.TensorSpec([None, 2], tf.float32)]
        run = lambda x, scale, call: tf.function(  # noqa: E731
            lambda x, scale: step(x, scale, call), input_signature=unknown if mode == "unknown batch" else None
        )(x, scale)
    (found, gradient), (want, wanted) = run(values, scale, parallel), step(values, scale, fn)
    np.testing.assert_allclose(found["mean"], want["mean"], rtol=1e-6)
    np.testing.assert_allclose(gradient, wanted, rtol=1e-6)
    assert found["same"].to_list() == want["same"].to_list()


@pytest.mark.parametrize("graph", [False, True])
def test_an_error_of_one_shard_stays_what_it_is_and_names_shard_and_device(devices: Devices, graph: bool) -> None:
    def fn(x: Any) -> Any:
        if x.shape[0] == 2:
            raise KeyError("two rows are too few")
        return x

    parallel = make_parallel(fn, devices)
    call = tf.function(lambda x: parallel(x=x), autograph=False) if graph else lambda x: parallel(x=x)
    with pytest.raises(KeyError, match="two rows are too few") as caught:
        call(rows(10))
    notes = getattr(caught.value, "__notes__", [])
    assert notes == [f"in shard 2 of 4, on {devices[2].name}"]


def test_an_error_under_autograph_names_shard_and_device_too(devices: Devices) -> None:
    def fn(x: Any) -> Any:
        if x.shape[0] == 2:
            raise ValueError("two rows are too few")
        return x

    parallel = make_parallel(fn, devices)
    with pytest.raises(ValueError, match=rf"two rows are too few \(in shard 2 of 4, on {devices[2].name}\)"):
        tf.function(lambda x: parallel(x=x))(rows(10))


@pytest.mark.parametrize("graph", [False, True])
def test_a_sparse_gradient_from_outside_reaches_the_shards(devices: Devices, graph: bool) -> None:
    weights = tf.Variable(rows(3, 5))

    def gradient(call: Callable[..., Any], x: Any) -> Any:
        with tf.GradientTape() as tape:
            picked = tf.gather(call(x=x), [0, 7, 7])
        return tape.gradient(picked, weights)

    fn = lambda x: tf.tanh(tf.matmul(x, weights))  # noqa: E731
    parallel = make_parallel(fn, devices)
    run = tf.function(lambda x: gradient(parallel, x)) if graph else lambda x: gradient(parallel, x)
    np.testing.assert_allclose(run(rows(10)), gradient(fn, rows(10)), rtol=1e-5)
