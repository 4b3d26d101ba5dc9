"""A step of a program: plain data that knows the shape of its result and how to compute it in TensorFlow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, NoReturn

from harness.errors import InvalidProgram
from harness.strategies.value import Value

#: The properties of each value so far, by name: arguments, variables, and ``v0``, ``v1`` … for the steps' results.
Types = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Edge:
    """How the gradient of a step's result reaches one operand.

    An element of the operand takes part in ``fan`` products per row of the batch, each with a factor of magnitude
    ``gain`` at most. So its gradient is at most ``fan * gain`` times the result's (times the rows, for a variable).
    """

    name: str
    fan: float
    gain: float


class Compact:
    """A short ``repr`` that can be evaluated, without default values."""

    def __repr__(self) -> str:
        parts = []
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.default is MISSING:
                parts.append(repr(value))
            elif value != field.default:
                parts.append(f"{field.name}={value!r}")
        return f"{type(self).__name__}({', '.join(parts)})"


@dataclass(frozen=True, repr=False)
class Step(Compact, ABC):
    """One step: it reads values by name, and its result is the value ``v<position of the step>``."""

    #: Name of the kind of step, as ``programs(kinds=...)`` takes it.
    KIND: ClassVar[str]
    #: The fields that name the values that the step reads.
    READS: ClassVar[tuple[str, ...]]
    #: Whether the step does arithmetic, which proves where it ran, and does not just move numbers.
    COMPUTES: ClassVar[bool] = True

    @property
    def needs_rows(self) -> bool:
        """Whether TensorFlow cannot run the step, or its gradient, on a batch of 0 rows."""
        return False

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of all values that the step reads."""
        return tuple(name for field in self.READS if (name := getattr(self, field)) is not None)

    def infer(self, types: Types) -> Value:
        """Return the properties of the result.

        Raises:
            InvalidProgram: the operands do not fit the step.
        """
        return self._infer(types)

    def apply(self, tf: Any, values: Mapping[str, Any]) -> Any:
        """Compute the result, batch axis first; ``tf`` is the module ``tensorflow``."""
        return self._apply(tf, values)

    def edges(self, types: Types) -> tuple[Edge, ...] | None:
        """Return how gradients flow, or ``None`` where the arithmetic is not that of integers."""
        return self._edges(types)

    @abstractmethod
    def _infer(self, types: Types) -> Value: ...

    @abstractmethod
    def _apply(self, tf: Any, values: Mapping[str, Any]) -> Any: ...

    def _edges(self, _types: Types) -> tuple[Edge, ...] | None:
        return None

    def fault(self, why: str, accepted: str) -> NoReturn:
        """Raise :class:`~harness.errors.InvalidProgram` for this step."""
        raise InvalidProgram(repr(self), why, accepted)

    def require(self, holds: bool, why: str, accepted: str) -> None:
        """Raise :class:`~harness.errors.InvalidProgram` unless ``holds``."""
        if not holds:
            self.fault(why, accepted)
