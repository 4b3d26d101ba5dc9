"""A program as plain data, whose ``repr`` can be evaluated. It can be built, and written as a script."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.strategies.build import Built, build
from harness.strategies.definition import Definition
from harness.strategies.script import script

if TYPE_CHECKING:
    from harness.devices.device import Devices


@dataclass(frozen=True, repr=False)
class Program(Definition):
    """A row-wise program: row ``i`` of each output depends on row ``i`` of the arguments, and on the variables.

    Raise InvalidProgram if the parts do not fit together.

    Attributes:
        arguments: a path with dots makes a nest: ``"pair.0"`` and ``"pair.1"`` are a tuple ``pair``.
        variables: shared by all rows and devices.
        steps: step ``i`` computes ``v<i>`` from the arguments, variables and earlier values that it names.
        outputs: ``(path, value)`` pairs; a single ``("", "v2")`` returns that value itself, other paths a nest.
        dtype: type of all numbers except indices and masks, one of :data:`~harness.strategies.dtypes.DTYPES`.
        axis: batch axis of arguments and outputs; inside the program the batch axis is 0.
        rows: batch size of :meth:`inputs`.
        seed: of the values of arguments and variables.
        exact: all values and gradients are integers small enough for exact sums in any order. For gradients that holds
            for outputs weighted by integers up to :data:`PROJECTION_LIMIT`.
        traced: ``build().fn`` is a ``tf.function``.
    """

    def build(self, host: str = "/job:localhost/replica:0/task:0/device:CPU:0") -> Built:
        """Build the TensorFlow function, and its variables on the device ``host``."""
        return build(self, host)

    def script(self, devices: Devices | str = "cpu:4", **options: Any) -> str:
        """Return a script that verifies this program; the options are those of :func:`.script.script`."""
        return script(self, devices, **options)
