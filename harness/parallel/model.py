"""Model parallel: the stages of one model, each on a device of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from harness.devices.device import Device, Devices
from harness.errors import StageError
from harness.lazy import tf
from harness.parallel.given import given_callables, given_names, split_and_whole
from harness.parallel.notes import add_note
from harness.parallel.region import call_on
from harness.parallel.shards import gather_batch
from harness.plural import plural

Stage = Callable[..., Any]


def pipeline(
    stages: Sequence[Stage], devices: Sequence[Device], *, microbatches: int = 1, broadcast: Sequence[str] = ()
) -> Pipeline:
    """Return a callable that runs ``stages`` one after the other, stage k on ``devices[k]``.

    The callable takes the arguments of the first stage; each later stage takes the result of the previous one (a tensor
    or a nest of tensors) as its only argument. Forward ops, backward ops and the variables that a stage creates in its
    first call are on its device. The result stays on the last device: compute the loss there.

    With micro-batches, the batch is split along axis 0 on the host, each part goes through all stages, and the results
    are concatenated on the last device. In a ``tf.function`` the stages then work at the same time, each on another
    micro-batch. Micro-batches differ by at most one row. Stages must be row-wise: batch normalisation, for example,
    would see one micro-batch only.

    Args:
        stages: functions, Keras layers or models, or other callables; at least one.
        devices: from ``harness.configure``, or a slice of it; at least as many as stages.
        microbatches: the number of parts of each batch; 1 or more.
        broadcast: names of arguments that every micro-batch gets whole.

    Examples:
        >>> parallel = harness.pipeline([model, other_model], devices, microbatches=2)
        >>> y = parallel(x=x)

    Raises:
        StageError: an argument is invalid; when called: the first stage has no such argument, a batch has fewer rows
            than micro-batches, or a stage rejects the result of the previous one.
        ShardingError: with micro-batches: arguments that cannot be split, or results that cannot be joined.
        Exception: any other that a stage raises, with the stage and the device added to it.
    """
    return Pipeline(stages, devices, microbatches=microbatches, broadcast=broadcast)


class Pipeline:
    """The callable that :func:`pipeline` returns."""

    #: Tells AutoGraph to leave this object alone; the stages are converted.
    autograph_info__: Any = None
    #: For ``harness.verify``: tensors may cross between neighbouring devices only.
    pattern = "stages"

    def __init__(
        self,
        stages: Sequence[Stage],
        devices: Sequence[Device],
        *,
        microbatches: int = 1,
        broadcast: Sequence[str] = (),
    ) -> None:
        self.stages = given_callables("stages", stages, "functions or layers", StageError)
        own = Devices.given(devices, StageError)
        if len(stages) > len(devices):
            raise StageError(
                f"found {plural(len(stages), 'stage')} and {plural(len(devices), 'device')}; accepted: one device "
                "for each stage"
            )
        if not isinstance(microbatches, int) or isinstance(microbatches, bool) or microbatches < 1:
            raise StageError(f"microbatches={microbatches!r}; accepted: an integer, 1 or more")
        self.devices = own[: len(stages)]
        self.microbatches = microbatches
        self.broadcast = given_names("broadcast", broadcast, StageError)

    def __call__(self, *args: Any, **arguments: Any) -> Any:
        """Run all stages. See :func:`pipeline`."""
        self._check_arguments(args, arguments)
        if self.microbatches == 1:
            return self._through(args, arguments)
        if args:
            raise StageError(
                f"found {plural(len(args), 'positional argument')}; a pipeline with micro-batches takes all "
                "arguments by name"
            )
        parts, added = self._split(arguments)
        results = [self._through((), part) for part in parts]
        if len(results) == 1:
            return results[0]
        with tf.device(self.devices[-1].name):
            return tf.nest.map_structure(lambda *pieces: self._join(pieces, added), *results)

    def _check_arguments(self, args: Sequence[Any], arguments: dict[str, Any]) -> None:
        """Check the arguments against the signature of the first stage."""
        first = self.stages[0]
        layer = not inspect.isroutine(first) and callable(getattr(first, "call", None))
        try:
            # The __call__ of a Keras layer takes anything, and itself handles the two names below.
            signature = inspect.signature(first.call if layer else first)  # type: ignore[attr-defined]
        except (TypeError, ValueError):  # Some functions written in C have none.
            return
        kept = {name: value for name, value in arguments.items() if not (layer and name in ("training", "mask"))}
        try:
            signature.bind(*args, **kept)
        except TypeError as error:
            raise StageError(
                f"the first stage ({_name(first)}) does not take these arguments: {error}; "
                f"accepted: {_name(first)}{signature}"
            ) from error

    def _split(self, arguments: dict[str, Any]) -> tuple[list[dict[str, Any]], list[Any]]:
        """The arguments of each micro-batch, and how many rows were added to each one so that none is empty."""
        split, whole = split_and_whole(arguments, self.broadcast, StageError)
        with tf.device(self.devices.host):
            batch = gather_batch(split, 0)
            if batch.rows_are_known and batch.rows < self.microbatches:
                raise StageError(
                    f"microbatches={self.microbatches}, but the batch has {plural(batch.rows, 'row')}; use at most as "
                    "many micro-batches as rows"
                )
            rows, parts = batch.shards(self.microbatches)
            added: list[Any] = [0] * len(parts)
            if not batch.rows_are_known:
                for at in range(1, len(parts)):
                    parts[at], added[at] = batch.fill_if_empty(parts[at], rows[at], parts[0], rows[0])
        return [{**tf.nest.pack_sequence_as(split, leaves), **whole} for leaves in parts], added

    def _through(self, args: Sequence[Any], arguments: dict[str, Any]) -> Any:
        for index in range(len(self.stages)):
            args, arguments = (self._run(index, args, arguments),), {}
        return args[0]

    def _run(self, index: int, args: Sequence[Any], arguments: dict[str, Any]) -> Any:
        stage, device = self.stages[index], self.devices[index].name
        where = f"stage {index} of {len(self.stages)} ({_name(stage)}), on {device}"
        try:
            return call_on(device, stage, args, arguments)
        except Exception as error:
            refused = isinstance(error, (ValueError, TypeError, tf.errors.InvalidArgumentError))
            if index == 0 or not refused or isinstance(error, StageError):
                add_note(error, f"in {where}")
                raise
            given = _shapes(args[0])
            first = next(iter(str(error).strip().splitlines()), "")
            raise StageError(
                f"{where}, does not accept the result of stage {index - 1} ({_name(self.stages[index - 1])}), {given}: "
                f"{type(error).__name__}: {first}"
            ) from error

    def _join(self, pieces: Sequence[Any], added: Sequence[Any]) -> Any:
        if not isinstance(pieces[0], tf.Tensor):
            return pieces[0]
        if pieces[0].shape.rank == 0:
            raise StageError(
                "the last stage returns a scalar per micro-batch, so the results are no longer a batch; "
                "return one value per row and reduce after the call"
            )
        # The cut has backward ops too, which belong on the device of the last stage.
        own = [
            call_on(self.devices[-1].name, _without_last_rows, (piece, more), {}) if tf.is_tensor(more) else piece
            for piece, more in zip(pieces, added, strict=True)
        ]
        return tf.concat(own, axis=0)


def _without_last_rows(value: Any, count: Any) -> Any:
    return value[: tf.shape(value)[0] - count]


def _name(stage: Stage) -> str:
    return str(getattr(stage, "name", None) or getattr(stage, "__name__", None) or type(stage).__name__)


def _shapes(value: Any) -> str:
    def shape(leaf: Any) -> str:
        return f"{leaf.dtype.name}{leaf.shape}" if isinstance(leaf, tf.Tensor) else repr(leaf)

    return ", ".join(shape(leaf) for leaf in tf.nest.flatten(value)) or "nothing"
