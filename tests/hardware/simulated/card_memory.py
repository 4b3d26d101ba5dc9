"""The memory of a described card: its allocations."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.hardware.machine import DeviceMemoryFull


@dataclass(slots=True)
class CardMemory:
    """Memory of ``total_bytes``: ``reserved_bytes`` belong to the driver, ``kept_bytes`` are unavailable but look free.

    A buffer takes the lowest gap that is large enough, so the same buffers get the same addresses again.
    """

    device: str
    total_bytes: int
    reserved_bytes: int = 0
    kept_bytes: int = 0
    _taken: dict[int, int] = field(default_factory=dict)

    @property
    def used_bytes(self) -> int:
        """The memory in use."""
        return self.reserved_bytes + sum(self._taken.values())

    @property
    def free_bytes(self) -> int:
        """What is reported as free, unavailable memory included."""
        return max(0, self.total_bytes - self.used_bytes)

    @property
    def room_bytes(self) -> int:
        """What can be allocated, in one piece or several."""
        return max(0, self.free_bytes - self.kept_bytes)

    def take(self, size_bytes: int) -> int:
        """Return the address of a new buffer, in bytes.

        Raises:
            DeviceMemoryFull: no gap is large enough.
        """
        end = self.total_bytes - self.reserved_bytes - self.kept_bytes
        at = 0
        for begin in sorted(self._taken):
            if begin - at >= size_bytes:
                break
            at = begin + self._taken[begin]
        if at + size_bytes > end:
            raise DeviceMemoryFull(self.device, size_bytes)
        # An empty buffer has a unique address too.
        self._taken[at] = max(size_bytes, 1)
        return at

    def give_back(self, address: int) -> None:
        """Free the buffer at ``address``."""
        self._taken.pop(address, None)
