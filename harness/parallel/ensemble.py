"""Ensembles: several models, each on a device of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from harness.devices.device import Device, Devices
from harness.errors import EnsembleError
from harness.parallel.given import given_callables, given_names
from harness.parallel.notes import add_note
from harness.parallel.region import call_on
from harness.plural import plural

Model = Callable[..., Any]


def ensemble(models: Sequence[Model], devices: Sequence[Device], *, each: Sequence[str] = ()) -> Ensemble:
    """Return a callable that runs every model on the same arguments, model k on ``devices[k]``, and lists the results.

    The callable takes the models' keyword arguments; for an argument named in ``each``, it takes a list with one value
    per model. Forward ops, backward ops and the variables that a model creates in its first call are on its device,
    where its result stays. A model may be a training step with its own tape and optimizer; call
    ``optimizer.build(variables)`` in eager code first, or TensorFlow puts the slots on the default device.

    In a ``tf.function`` the models run at the same time. In eager code on CPUs they run one after the other.

    Args:
        models: functions, Keras models, or other callables; at least one.
        devices: from ``harness.configure``, or a slice of it; at least as many as models.
        each: names of arguments of which every model gets its own value.

    Examples:
        >>> both = harness.ensemble([model, other_model], devices)
        >>> len(both(x=x))  # the results of the models, one after the other
        2

    Raises:
        EnsembleError: an argument is invalid; when called: an argument in ``each`` has not one value per model.
        Exception: any that a model raises, with the model and the device added to it.
    """
    return Ensemble(models, devices, each=each)


class Ensemble:
    """The callable that :func:`ensemble` returns."""

    #: Tells AutoGraph to leave this object alone; the models are converted.
    autograph_info__: Any = None
    #: For ``harness.verify``: nothing may cross between the devices.
    pattern = "members"

    def __init__(self, models: Sequence[Model], devices: Sequence[Device], *, each: Sequence[str] = ()) -> None:
        self.models = given_callables("models", models, "functions or models", EnsembleError)
        own = Devices.given(devices, EnsembleError)
        if len(models) > len(devices):
            raise EnsembleError(
                f"found {plural(len(models), 'model')} and {plural(len(devices), 'device')}; accepted: one device "
                "for each model"
            )
        self.devices = own[: len(models)]
        self.each = given_names("each", each, EnsembleError)

    def __call__(self, **arguments: Any) -> list[Any]:
        """Run all models. See :func:`ensemble`."""
        for name in self.each:
            given = arguments.get(name)
            if not isinstance(given, (list, tuple)) or len(given) != len(self.models):
                found = (
                    f"has {plural(len(given), 'value')}"
                    if isinstance(given, (list, tuple))
                    else f"is of type {type(given).__name__}"
                )
                found = found if name in arguments else "is missing"
                raise EnsembleError(
                    f"argument {name} {found}; accepted: a list of {plural(len(self.models), 'value')}, one per model"
                )
        results = []
        for index, (model, device) in enumerate(zip(self.models, self.devices, strict=True)):
            own = {name: value[index] if name in self.each else value for name, value in arguments.items()}
            try:
                results.append(call_on(device.name, model, (), own))
            except Exception as error:
                add_note(error, f"in model {index} of {len(self.models)}, on {device.name}")
                raise
        return results
