"""Asks the NVIDIA driver for its GPUs. Everything here is ``None`` or empty without a driver.

TensorFlow, CUDA and the driver number GPUs differently (``CUDA_VISIBLE_DEVICES`` and CUDA's speed order renumber them),
so a GPU is identified by its UUID, never by an index.
"""

from __future__ import annotations

import ctypes
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from harness.devices.nvml import NO_DRIVER, NO_PERMISSION, NOT_SUPPORTED, Library, Refused

_MIB = 1024 * 1024
_KERNEL_MODULE = Path("/proc/driver/nvidia/version")
_PCI_DEVICES = Path("/sys/bus/pci/devices")
#: NVML's number of the compute mode.
_EXCLUSIVE_PROCESS = 3


@dataclass(frozen=True, slots=True)
class Card:
    """One card as the driver reports it. ``uuid`` is in the driver's form, ``GPU-xxxxxxxx-xxxx-…``."""

    name: str
    uuid: str
    #: ``None`` for a card that shares the memory of its host.
    total_mib: int | None
    free_mib: int | None
    index: int | None = None
    pci: str | None = None
    serial: str | None = None
    vbios: str | None = None
    board_part: str | None = None
    compute_capability: str | None = None
    #: Whether only one process at a time may use it (the compute mode EXCLUSIVE_PROCESS).
    exclusive: bool = False
    #: The slices into which MIG divides it. CUDA sees them, and not the card.
    slices: tuple[Card, ...] = ()


@dataclass(frozen=True, slots=True)
class SilentCard:
    """A card that the driver counts and that does not answer, such as one that has fallen off the bus.

    What identifies it is what the driver still says.
    """

    index: int
    error: str
    uuid: str | None = None
    pci: str | None = None
    serial: str | None = None


def nvml_error() -> str | None:
    """Return the error with which the management library of a driver refuses to start or to count the cards."""
    error = _refusal()
    return None if error is None or error.code in NO_DRIVER else error.text


def nvml_code() -> int | None:
    """Return the number of the error with which NVML refuses to start or to count, also where there is no driver."""
    error = _refusal()
    return None if error is None else error.code


def nvml_refusal() -> tuple[int | None, str] | None:
    """Return the error with which NVML refuses to start or to count, also where there is no driver: number and text."""
    error = _refusal()
    return None if error is None else (error.code, error.text)


def _refusal() -> Refused | None:
    with Library.load() as library:
        if library.opened:
            try:
                library.ask("nvmlDeviceGetCount")
            except Refused as error:
                return error
        return library.refused


def read_cards(module: Any = None) -> tuple[Card, ...]:
    """Return the cards in the driver's order, without those that have fallen off the bus and answer nothing.

    ``module`` is an open ``pynvml``, by default the one of this machine.
    """
    return tuple(each for each in _asked_each(module) if isinstance(each, Card))


def silent_cards(module: Any = None) -> tuple[SilentCard, ...]:
    """Return the cards that the driver counts, that are given to this process, and that do not answer."""
    return tuple(each for each in _asked_each(module) if isinstance(each, SilentCard))


def _asked_each(module: Any) -> list[Card | SilentCard]:
    """Ask every card that is given to this process."""
    asked: list[Card | SilentCard] = []
    with Library.load() if module is None else nullcontext(Library(module)) as library:
        for index in range(_count(library)):
            handle = None
            try:
                handle = library.ask("nvmlDeviceGetHandleByIndex", index)
                asked.append(_card(library, handle, index))
            except Refused as error:
                if error.code != NO_PERMISSION:
                    asked.append(_silent(library, handle, index, error.text))
    return asked


def counted_cards() -> int:
    """Return how many cards the driver counts, those that are not given to this process too."""
    with Library.load() as library:
        return _count(library)


def _count(library: Library) -> int:
    return int(library.call("nvmlDeviceGetCount") or 0)


def _silent(library: Library, handle: Any, index: int, error: str) -> SilentCard:
    if handle is None:
        return SilentCard(index, error)
    uuid, serial = (library.call(function, handle) for function in ("nvmlDeviceGetUUID", "nvmlDeviceGetSerial"))
    return SilentCard(index, error, uuid, _pci(library, handle), serial)


def silenced(uuids: Iterable[str]) -> dict[str, str]:
    """Return the error of each of these cards, and slices of cards, that no longer answers the driver."""
    silent = silent_cards()
    if not silent:
        return {}
    answering = {part.uuid for card in read_cards() for part in (card, *card.slices)}
    # A silent card does not say its UUID, so which UUID has which number is unknown.
    return {uuid: silent[0].error for uuid in uuids if uuid not in answering}


def cards_on_bus(folder: Path = _PCI_DEVICES, *, driver: str = "nvidia") -> tuple[str, ...]:
    """Return the addresses of NVIDIA's GPUs on the PCI bus that no driver has, or this one.

    Those that another driver has, such as ``vfio-pci`` for a virtual machine, are left out.
    """
    found = []
    for device in sorted(folder.glob("*")):
        try:
            vendor, kind = ((device / name).read_text(encoding="ascii").strip() for name in ("vendor", "class"))
        except OSError:
            continue
        bound = (device / "driver").resolve().name if (device / "driver").exists() else None
        # Display and 3D controllers; a card's audio and its switches are other classes.
        if vendor == "0x10de" and kind.startswith(("0x0300", "0x0302")) and bound in (None, driver):
            found.append(device.name)
    return tuple(found)


def in_container(root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is in a container, which sees the host's whole PCI bus and only its own GPUs."""
    marks = (root / ".dockerenv", root / "run" / ".containerenv", root / ".singularity.d")
    return any(mark.exists() for mark in marks) or "KUBERNETES_SERVICE_HOST" in environment


def memory_by_process() -> dict[tuple[str, int], int | None]:
    """Return the GPU memory of processes: (UUID of the card, process id) to MiB, ``None`` if the driver hides it.

    In a container the driver may name processes by ids that mean nothing inside.
    """
    used: dict[tuple[str, int], int | None] = {}
    with Library.load() as library:
        for index in range(_count(library)):
            # A card that is lost hides nothing of the others.
            with suppress(Refused):
                handle = library.ask("nvmlDeviceGetHandleByIndex", index)
                uuid = library.ask("nvmlDeviceGetUUID", handle)
                for process in library.ask("nvmlDeviceGetComputeRunningProcesses", handle):
                    mib = process.usedGpuMemory
                    used[uuid, int(process.pid)] = None if mib is None else int(mib) // _MIB
    return used


def card_of(uuid: str | None, cards: Sequence[Card]) -> Card | None:
    """Return the card, or the slice of one, with this UUID."""
    return next((each for card in cards for each in (card, *card.slices) if each.uuid == uuid), None)


def free_bytes(uuid: str | None) -> int | None:
    """Return what the driver reports as free on the card, or the slice of one, with this UUID."""
    card = card_of(uuid, read_cards())
    return None if card is None or card.free_mib is None else card.free_mib * _MIB


class _WithUuid(Protocol):
    @property
    def uuid(self) -> str | None: ...


_C = TypeVar("_C", bound=_WithUuid)


def visible_cards(cards: Sequence[_C], visible: str | None) -> list[_C]:
    """Return the cards that CUDA should show with this ``CUDA_VISIBLE_DEVICES``, in order.

    They end at the first invalid entry, as CUDA's guide says.
    """
    if visible is None:
        return list(cards)
    chosen: list[_C] = []
    for part in (each.strip() for each in visible.split(",")):
        if part.isdigit():
            named = [cards[int(part)]] if int(part) < len(cards) else []
        else:
            named = [card for card in cards if part.startswith(("GPU-", "MIG-")) and (card.uuid or "").startswith(part)]
        if len(named) != 1 or named[0] in chosen:
            break
        chosen += named
    return chosen


def _card(library: Library, handle: Any, index: int) -> Card:
    # The library may remember the name and UUID of a card that is lost, and not its memory.
    total_mib, free_mib = _memory(library, handle)
    capability = library.call("nvmlDeviceGetCudaComputeCapability", handle)
    card = Card(
        name=library.ask("nvmlDeviceGetName", handle),
        uuid=library.ask("nvmlDeviceGetUUID", handle),
        total_mib=total_mib,
        free_mib=free_mib,
        index=index,
        pci=_pci(library, handle),
        serial=library.call("nvmlDeviceGetSerial", handle),
        vbios=library.call("nvmlDeviceGetVbiosVersion", handle),
        board_part=library.call("nvmlDeviceGetBoardPartNumber", handle),
        compute_capability=None if capability is None else ".".join(map(str, capability)),
        exclusive=library.call("nvmlDeviceGetComputeMode", handle) == _EXCLUSIVE_PROCESS,
    )
    return replace(card, slices=tuple(_slices(library, handle, card)))


def _memory(library: Library, handle: Any) -> tuple[int | None, int | None]:
    """Return the memory in all and what is free; ``None`` for a card that shares the memory of its host."""
    try:
        memory = library.ask("nvmlDeviceGetMemoryInfo", handle)
    except Refused as error:
        if error.code == NOT_SUPPORTED:
            return None, None
        raise
    return int(memory.total) // _MIB, int(memory.free) // _MIB


def _slices(library: Library, handle: Any, card: Card) -> Iterator[Card]:
    """Yield the slices of a card in MIG mode, each with a UUID and memory of its own."""
    on, _ = library.call("nvmlDeviceGetMigMode", handle) or (0, 0)
    for number in range(int(library.call("nvmlDeviceGetMaxMigDeviceCount", handle) or 0) if on else 0):
        # Only some numbers are taken.
        with suppress(Refused):
            part = library.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
            total_mib, free_mib = _memory(library, part)
            uuid = library.ask("nvmlDeviceGetUUID", part)
            yield replace(card, uuid=uuid, total_mib=total_mib, free_mib=free_mib, slices=())


def _pci(library: Library, handle: Any) -> str | None:
    """Return the bus id: ``0000:3B:00.0`` of NVML's ``00000000:3B:00.0``."""
    info = library.call("nvmlDeviceGetPciInfo", handle)
    return None if info is None else bus_id(info)


def bus_id(info: Any) -> str:
    """Return the address that NVML gives in a ``nvmlPciInfo_t``, as the kernel writes it."""
    text = info.busId.decode() if isinstance(info.busId, bytes) else info.busId
    domain, separator, rest = text.partition(":")
    return f"{domain[-4:]}{separator}{rest}" if separator and len(domain) > 4 else text


def cuda_uuids(library: Any = None) -> tuple[str, ...]:
    """List the UUIDs of the GPUs in CUDA's order in this process, which is TensorFlow's. Empty if unknown.

    ``library`` is the CUDA driver API, by default ``libcuda.so.1``. No context is made, so no memory is used.
    """
    library = library or _cuda()
    if library is None:
        return ()
    count = ctypes.c_int()
    if library.cuInit(0) != 0 or library.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return ()
    found = []
    for index in range(count.value):
        device = ctypes.c_int()
        raw = (ctypes.c_ubyte * 16)()
        if library.cuDeviceGet(ctypes.byref(device), index) != 0:
            return ()
        if library.cuDeviceGetUuid(ctypes.byref(raw), device) != 0:
            return ()
        text = f"GPU-{uuid.UUID(bytes=bytes(raw))}"
        # That of the whole card, also for a slice of it, whose own UUID only the second version gives.
        card, second = bytes(raw), getattr(library, "cuDeviceGetUuid_v2", None)
        if second is not None and second(ctypes.byref(raw), device) == 0 and bytes(raw) != card:
            text = f"MIG-{uuid.UUID(bytes=bytes(raw))}"
        found.append(text)
    return tuple(found)


def cuda_error() -> int | None:
    """Return the error with which CUDA refuses to start; ``None`` where it starts, or is not installed."""
    library = _cuda()
    code = 0 if library is None else int(library.cuInit(0))
    return code or None


def _cuda() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def match_cards(count: int, cards: Sequence[Card], uuids: Sequence[str]) -> tuple[Card | None, ...]:
    """Match TensorFlow's ``count`` GPUs to cards, ``None`` where the match is uncertain.

    TensorFlow leaves out GPUs that are too old, and CUDA's order is then ambiguous.
    """
    if len(uuids) == count:
        return tuple(card_of(uuid, cards) for uuid in uuids)
    if count == len(cards) == 1 and not cards[0].slices:
        return (cards[0],)
    return (None,) * count


def driver_version(kernel_module: Path = _KERNEL_MODULE) -> str | None:
    """Read the driver version, such as ``550.54.15``, from the kernel module's file."""
    try:
        text = kernel_module.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r"\b\d{3,}\.\d+(?:\.\d+)?\b", text)
    return match[0] if match else None
