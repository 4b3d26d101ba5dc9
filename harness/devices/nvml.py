"""The one door to NVML, the management library of NVIDIA's driver: only here it is opened, asked and closed."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, TypeVar

#: NVML's errors: of a link or a field that this driver does not have, of what a card lacks, of a card that is not given
#: to this process (Slurm's cgroups), of a wait in which nothing has come, of a function that the driver does not have,
#: of a structure that it knows in another version, and of a machine on which the kernel module or the libraries of the
#: driver are missing.
NO_SUCH, NOT_SUPPORTED, NO_PERMISSION, TIMEOUT, NO_FUNCTION, OTHER_VERSION, NO_DRIVER = 2, 3, 4, 10, 13, 25, (9, 12)
#: Those that say that a card lacks something: it does in general, or its ECC cannot be seen from a virtual machine.
LACKING = (NOT_SUPPORTED, 22)

_L = TypeVar("_L", bound="Library")


class Refused(Exception):
    """NVML answers with an error: its number, if known, and its text."""

    def __init__(self, code: int | None, text: str) -> None:
        self.code = code
        self.text = text
        super().__init__(text)


class Library:
    """The open library. ``module`` is ``pynvml``; without one, every question is refused."""

    def __init__(self, module: Any) -> None:
        self._module = module
        #: The error with which the library of this machine does not start; ``None`` also without ``nvidia-ml-py``.
        self.refused: Refused | None = None

    @classmethod
    def load(cls: type[_L]) -> _L:
        """Open the library of this machine; without ``nvidia-ml-py`` or a driver, it is not ``opened``."""
        made = cls(None)
        with suppress(ImportError):
            import pynvml

            try:
                pynvml.nvmlInit()
                made._module = pynvml
            except pynvml.NVMLError as error:
                made.refused = _refused(error)
        return made

    def __enter__(self: _L) -> _L:
        return self

    def __exit__(self, *_: object) -> None:
        self.call("nvmlShutdown")

    @property
    def opened(self) -> bool:
        """Whether there is a driver."""
        return self._module is not None

    def constant(self, name: str) -> Any:
        """Return a constant of NVML, by its name. Raise AttributeError if this release of nvidia-ml-py has none."""
        return getattr(self._module, name)

    def ask(self, function: str, *arguments: Any) -> Any:
        """Call a function of NVML. Of the arguments, a constant may be given by its name: ``NVML_CLOCK_SM``.

        Raises:
            Refused: the driver answers with an error, or there is none.
            AttributeError: this release of nvidia-ml-py does not have the function, or a constant.
        """
        if self._module is None:
            raise self.refused or Refused(None, "no driver")
        named = [isinstance(each, str) and each.startswith("NVML_") for each in arguments]
        given = [self.constant(each) if name else each for each, name in zip(arguments, named, strict=True)]
        try:
            answer = getattr(self._module, function)(*given)
        except self._module.NVMLError as error:
            raise _refused(error) from error
        # Older releases of nvidia-ml-py return bytes.
        return answer.decode() if isinstance(answer, bytes) else answer

    def call(self, function: str, *arguments: Any) -> Any:
        """Call a function of NVML as :meth:`ask` does; ``None`` if it fails."""
        with suppress(Refused, AttributeError, TypeError, ValueError):
            return self.ask(function, *arguments)
        return None


def _refused(error: Exception) -> Refused:
    return Refused(getattr(error, "value", None), str(error))
