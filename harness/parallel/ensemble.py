"""Ensembles: several models, each on a device of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from harness.devices.device import Device, Devices
from harness.errors import EnsembleError
from harness.parallel.notes import add_note
from harness.parallel.region import call_on

Model = Callable[..., Any]


def ensemble(models: Sequence[Model], devices: Sequence[Device], *, each: Sequence[str] = ()) -> Ensemble:
    """A callable that runs every model with the same arguments, model k on ``devices[k]``, and lists their results.

    The callable takes the keyword arguments of the models. Of an argument that is named in ``each`` it takes a list
    with a value for every model. Nothing but arguments and results crosses from device to device: forward and backward
    ops of a model, and the variables that it makes in its first call, are on its device, where its result stays. A
    model may be a training step with its own tape and optimizer; build the optimizer beforehand
    (``optimizer.build(variables)`` in eager code), or TensorFlow puts its slots on the default device.

    In a ``tf.function`` the models run at the same time; in eager code TensorFlow finishes an op on a CPU before it
    returns, so that they run one after the other there.

    Args:
        models: functions, Keras models, or other callables. At least one.
        devices: what ``harness.configure`` returned, or a slice of it: at least as many as there are models.
        each: names of arguments of which every model gets its own.

    Raises:
        EnsembleError: no model, more models than devices, a model that cannot be called; when called: an argument in
            ``each`` that is not there, or is no list with as many values as there are models.
        Exception: what a model raises, with the model and the device added to it.
    """
    return Ensemble(models, devices, each=each)


class Ensemble:
    """What :func:`ensemble` returns."""

    #: TensorFlow's AutoGraph leaves a callable with this attribute as it is; the models themselves are converted.
    autograph_info__: Any = None
    #: What ``harness.verify`` judges the transfers by: devices hand nothing to one another.
    pattern = "members"

    def __init__(self, models: Sequence[Model], devices: Sequence[Device], *, each: Sequence[str] = ()) -> None:
        if not len(models):
            raise EnsembleError("there is no model; give at least one callable")
        for index, model in enumerate(models):
            if not callable(model):
                raise EnsembleError(f"model {index} is {model!r}, which is not callable; give functions or models")
        if len(models) > len(devices):
            raise EnsembleError(
                f"{len(models)} models on {len(devices)} device(s); each model needs one of its own: "
                "configure more devices, or run the rest in a second ensemble"
            )
        if isinstance(each, str):
            raise EnsembleError(f"each={each!r}; accepted: a sequence of names, such as ({each!r},)")
        self.models = tuple(models)
        own = devices if isinstance(devices, Devices) else Devices(devices, spec="")
        self.devices = own[: len(models)]
        self.each = tuple(each)

    def __call__(self, **arguments: Any) -> list[Any]:
        """Run all models. See :func:`ensemble`."""
        for name in self.each:
            given = arguments.get(name)
            if not isinstance(given, (list, tuple)) or len(given) != len(self.models):
                found = f"{len(given)} values" if isinstance(given, (list, tuple)) else repr(type(given).__name__)
                raise EnsembleError(f"argument {name}: {found}; accepted: a list of {len(self.models)}, one per model")
        results = []
        for index, (model, device) in enumerate(zip(self.models, self.devices, strict=True)):
            own = {name: value[index] if name in self.each else value for name, value in arguments.items()}
            try:
                results.append(call_on(device.name, model, (), own))
            except Exception as error:
                add_note(error, f"in model {index} of {len(self.models)}, on {device.name}")
                raise
        return results
