"""A step of a program: plain data that knows the shape of its result and how to compute it in TensorFlow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from math import prod
from typing import Any, ClassVar, NoReturn, TypeAlias

from harness.errors import InvalidProgram


@dataclass(frozen=True, slots=True)
class Value:
    """The properties of a value that are known before a program runs.

    ``shape`` has no batch axis, which is axis 0 inside a program. A variable or a broadcast argument is not
    ``batched``. ``stable``: it has the same bits however the batch is split, as arguments, integers and exact values
    have; only such a value may decide a branch. ``below`` is the exclusive upper bound of integers from 0, and
    ``bound`` the largest magnitude of an element. ``levelled``: its sum over an axis (for logarithms, that of the
    exponentials) is constant, so that another sum would give only rounding errors.
    """

    shape: tuple[int, ...]
    dtype: str
    bound: float
    batched: bool = True
    stable: bool = False
    below: int | None = None
    levelled: bool = False

    @property
    def size(self) -> int:
        """Elements per row, or in all without a batch axis."""
        return prod(self.shape)


#: The properties of each value so far, by name: arguments, variables, and ``v0``, ``v1`` … for the steps' results.
Types = Mapping[str, Value]
#: What is accepted as an index.
INDEX = "integers from 0 up to a known bound, such as an argument with below=5"
#: The type of the fields that name a value that the step reads.
Operand: TypeAlias = str


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
    """One step: it reads values by name, and its result is the value ``v<position of the step>``.

    The first value that it reads has the batch axis, and so has the result.
    """

    #: Name of the kind of step, as ``programs(kinds=...)`` takes it: the class's in lower case.
    KIND: ClassVar[str]
    #: Whether the step does arithmetic, which proves where it ran, and does not just move numbers.
    COMPUTES: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.KIND = cls.__name__.lower()

    @property
    def needs_rows(self) -> bool:
        """Whether TensorFlow cannot run the step, or its gradient, on a batch of 0 rows."""
        return False

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of all values that the step reads."""
        names = [getattr(self, field.name) for field in fields(self) if str(field.type).startswith("Operand")]
        return tuple(name for name in names if name is not None)

    @abstractmethod
    def infer(self, types: Types) -> Value:
        """Return the properties of the result; raise InvalidProgram if the operands do not fit the step."""

    @abstractmethod
    def apply(self, values: Mapping[str, Any]) -> Any:
        """Compute the result, batch axis first."""

    def edges(self, _types: Types) -> tuple[Edge, ...] | None:
        """Return how gradients flow, or ``None`` where the arithmetic is not that of integers."""
        return None if self.COMPUTES else tuple(Edge(name, 1, 1) for name in self.reads)

    def fault(self, why: str, accepted: str) -> NoReturn:
        """Raise InvalidProgram for this step."""
        raise InvalidProgram(repr(self), why, accepted)

    def require(self, holds: bool, why: str, accepted: str) -> None:
        """Raise InvalidProgram unless ``holds``."""
        if not holds:
            self.fault(why, accepted)
