"""An op that has no kernel for a dtype on a kind of card: known, said, and no fault of the card."""

from __future__ import annotations

#: How TensorFlow says it: when it places an op without soft placement, or where no kernel takes a dtype.
_SAYINGS = (
    "could not find device for node",
    "no opkernel was registered",
    "no supported kernel",
    "not in the list of allowed values",
    "no registered",
)


class NoKernel(Exception):
    """The operation cannot run on this kind of card, because TensorFlow has no kernel for it there."""


def says_no_kernel(message: str) -> bool:
    """Whether an error of TensorFlow says that there is no kernel, and not that one went wrong."""
    lower = message.lower()
    return any(saying in lower for saying in _SAYINGS)


class telling_missing_kernels:  # noqa: N801 - used as a statement
    """``with telling_missing_kernels():`` turns TensorFlow's error for a missing kernel into :class:`NoKernel`.

    TensorFlow is not loaded for it: an error that is TensorFlow's says so itself.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None and kind.__module__.partition(".")[0] == "tensorflow" and says_no_kernel(str(error)):
            raise NoKernel(str(error).partition("\n")[0]) from error
