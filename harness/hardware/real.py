"""The machine of the hardware checks: TensorFlow's ops on configured devices."""

from __future__ import annotations

import contextlib
import copy
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from harness.devices.device import Device, Devices
from harness.devices.nvidia import memory_by_process
from harness.devices.runtime import server_process
from harness.errors import UsageError
from harness.hardware import patterns
from harness.hardware.host_slots import HostSlots, view_of
from harness.hardware.links import read_links
from harness.hardware.machine import (
    HOST,
    DeviceMemoryFull,
    Job,
    Mismatch,
    NeverReturns,
    Operation,
    Pattern,
    Ran,
    Reading,
)
from harness.hardware.room import (
    give_back_unused_memory,
    gpu_free_bytes,
    gpu_used_bytes,
    host_free_bytes,
    host_used_bytes,
    in_host_room,
)
from harness.hardware.tensors import Sending, TensorBuffer, in_host_memory, renewed, require_on, settle
from harness.lazy import tf

if TYPE_CHECKING:
    from harness.hardware.machine import PairLink
    from harness.hardware.memory_settings.setting import MemorySeen, MemorySetting
    from harness.hardware.software.installed import Software
    from harness.records import Card

#: What a host keeps when a buffer is made there, in bytes: a refusal is better than being killed for lack of memory.
_HOST_RESERVE_BYTES = 128 * 1024 * 1024
#: How long ascending words are kept on a card, in seconds: making them takes some 40 ms on a CPU.
_COUNTING_KEPT_S = 1.0
#: For less than this, free memory is not looked up first: that takes longer than copying it.
_SMALL_BYTES = 8 * 1024 * 1024
#: How often sensors are read while cards work, in seconds.
_EVERY_S = 0.1


class TensorFlowMachine:
    """A :class:`~harness.hardware.machine.Machine` on configured devices.

    Every result is proven to be on the card that it was made for. Copies between logical CPUs are real (see
    ``host_slots``). The first :meth:`run` of an operation on a card builds it: measure later ones.
    """

    def __init__(self, devices: Devices) -> None:
        from harness.hardware.card import cards_of
        from harness.hardware.nvml import Sensors

        self._devices = {device.parsed.short: device for device in devices}
        self.spec = devices.spec
        self._host_device = Device(devices.host, "logical-cpu", "")
        self._cards, self._present = cards_of(devices)
        self._by_label = {card.label: card for card in self._cards}
        self._slots = HostSlots(self._require_room)
        self._counting: dict[str, tuple[Any, float]] = {}
        self._chunks: dict[str, int] = {}
        self._built: dict[tuple[Operation, str], Any] = {}
        self._sensors = Sensors(self._cards)
        for card in self._cards if any(card.uuid is not None for card in self._cards) else ():
            self._sensors.reading(card.label, 0.0)  # from now on, the driver reports their errors
        self._sending = Sending()
        self._collectives: Any = None
        #: How long the ops of the last :meth:`collective` took, in seconds, without copies to and from cards.
        self.collective_s: float | None = None
        #: Whether a call has never returned, so that its devices are not free.
        self.spent = False

    @property
    def cards(self) -> tuple[Card, ...]:
        """The cards to check, in TensorFlow's order."""
        return self._cards

    @property
    def present(self) -> tuple[Card, ...]:
        """The cards that the driver reports, in its order; without a driver, ``cards``."""
        return self._present

    @property
    def unusable(self) -> tuple[Card, ...]:
        """The cards that nobody hides and TensorFlow lacks; none where CPUs were selected."""
        from harness.hardware.card import unusable

        if self.spec.startswith(("cpu", "cores")):
            return ()
        return unusable(self._cards, self._present, os.environ.get("CUDA_VISIBLE_DEVICES"))

    def only(self, labels: Collection[str]) -> TensorFlowMachine:
        """Return the machine with these cards alone, of those that it has."""
        made = copy.copy(self)
        made._cards = tuple(card for card in self._cards if card.label in labels)
        made._by_label = {card.label: card for card in made._cards}
        made._collectives = None
        return made

    def clock_s(self) -> float:
        """Return Python's clock for durations."""
        return time.perf_counter()

    def wait_s(self, seconds: float) -> None:
        """Let time pass."""
        time.sleep(seconds)

    def software(self) -> Software:
        """Return what the driver, the libraries and TensorFlow report about themselves."""
        from harness.hardware.software.measure import read_software

        return read_software()

    def reading(self, card: str) -> Reading:
        """Read the sensors of a card; for a CPU, those of the host."""
        return self._sensors.reading(card, self.clock_s())

    def free_bytes(self, card: str) -> int | None:
        """Return the memory that buffers could get; ``None`` on other hosts, and for a GPU without a driver library."""
        if card == HOST:
            return host_free_bytes()
        device = self._devices[card]
        if in_host_room(device):
            return host_free_bytes()
        return gpu_free_bytes(device, self._by_label[card].uuid) if device.parsed.in_this_process else None

    def used_bytes(self, card: str) -> int | None:
        """Return the memory in use: by this process, by the server of a core, by TensorFlow on a GPU."""
        if card == HOST:
            return host_used_bytes()
        device = self._devices[card]
        if device.kind == "core":
            process = server_process(device)
            return None if process is None else host_used_bytes(process)
        if in_host_room(device):
            return host_used_bytes()
        return gpu_used_bytes(device) if device.parsed.in_this_process else None

    def holders(self) -> Mapping[tuple[str, int], int | None]:
        """Return what processes hold of the cards' memory."""
        return memory_by_process() if any(card.free_bytes is not None for card in self._cards) else {}

    def pair_links(self) -> Mapping[tuple[str, str], PairLink]:
        """Return how ordered pairs of cards are joined, as far as NVML says."""
        return read_links(self._sensors.nvml, self._cards, self._present)

    def memory_settings(self, trials: Sequence[tuple[str, MemorySetting]]) -> list[MemorySeen | str]:
        """Return what a separate process gets of a card with each setting, all at once."""
        from harness.hardware.memory_settings.measure import see_each

        return see_each([(self._by_label[card].uuid, setting) for card, setting in trials])

    def fill(self, card: str, size_bytes: int, pattern: Pattern) -> TensorBuffer:
        """Make a buffer that holds the pattern, written by ops on the card, in pieces of 64 MiB."""
        device = self._devices[card]
        self._require_room(device, size_bytes)
        words = size_bytes // 8
        pieces: list[Any] = []
        with _memory(card, size_bytes):
            chunk = self._chunk_words(card)
            counting = self._counting_on(card, min(words, chunk))
            with tf.device(device.name):
                for start in range(0, words, patterns.PIECE_CHUNKS * chunk):
                    piece = min(patterns.PIECE_CHUNKS * chunk, words - start)
                    pieces.append(patterns.make_piece(counting, pattern, start, piece))
            settle(pieces, device)
        require_on(pieces, device)
        return TensorBuffer(card, tuple(pieces))

    def mismatch(self, buffer: TensorBuffer, pattern: Pattern) -> Mismatch:
        """Compare the buffer with the pattern by ops on its card, chunk by chunk."""
        device = self._devices[buffer.card]
        count, first, found, start = 0, None, None, 0
        with _memory(buffer.card, buffer.size_bytes), tf.device(device.name):
            counting = self._counting_on(buffer.card, min(buffer.size_bytes // 8, self._chunk_words(buffer.card)))
            for piece in buffer.words():
                require_on([piece], device)
                part = patterns.compare(counting, piece, pattern, start)
                start += int(piece.shape[0])
                count += part.count
                if first is None:
                    first, found = part.first_word, part.found
        return Mismatch(count, first, found)

    def put(self, array: npt.NDArray[Any], card: str) -> TensorBuffer:
        """Copy ``array`` to the card. A GPU gets it from pageable memory, as in TensorFlow's own programs."""
        device = self._devices[card]
        with _memory(card, array.nbytes):
            # With tf.constant the host would copy it twice more, each time into new memory.
            tensor = self._slots.tensor_of(array, device if in_host_memory(device) else self._host_device)
            if tensor is None or not in_host_memory(device):
                self._require_room(device, array.nbytes)
                with tf.device(device.name):
                    tensor = tf.identity(tf.constant(array) if tensor is None else tensor)
            settle([tensor], device)
        require_on([tensor], device)
        return TensorBuffer(card, (tensor,))

    def fetch(self, buffer: TensorBuffer) -> npt.NDArray[Any]:
        """Copy the buffer to an array: with its shape if it is one tensor, ``[n]`` of int64 words if it is in pieces.

        A single tensor that is not in the host's memory becomes a read-only array.
        """
        device = self._devices[buffer.card]
        pieces = buffer.pieces
        if not in_host_memory(device):
            pieces = tuple(renewed(piece, device) for piece in pieces)
            if len(pieces) == 1 and (view := view_of(pieces[0])) is not None:
                return view
        array = self._slots.array_of(*pieces)
        if array is not None:
            return array
        arrays: list[npt.NDArray[Any]] = [piece.numpy() for piece in pieces]
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

    def move(self, buffer: TensorBuffer, card: str, repeats: int = 1) -> TensorBuffer:
        """Copy the buffer to another card ``repeats`` times and return the last copy."""
        return self.exchange([(buffer, card)], repeats)[0]

    def exchange(self, moves: Sequence[tuple[TensorBuffer, str]], repeats: int = 1) -> list[TensorBuffer]:
        """Make several copies at once, each started by its own thread."""
        if len(moves) == 1:
            moved = [self._start_move(*moves[0], repeats)]
        else:
            with ThreadPoolExecutor(max(len(moves), 1)) as pool:
                moved = list(pool.map(lambda each: self._start_move(each[0], each[1], repeats), moves))
        for buffer in moved:
            with _memory(buffer.card, buffer.size_bytes):
                settle(buffer.pieces, self._devices[buffer.card])
            require_on(buffer.pieces, self._devices[buffer.card])
        return moved

    def _start_move(self, buffer: TensorBuffer, card: str, repeats: int) -> TensorBuffer:
        source, target = self._devices[buffer.card], self._devices[card]
        pieces, keeper = [], []
        with _memory(card, buffer.size_bytes):
            for piece in buffer.pieces:
                if in_host_memory(source) and in_host_memory(target):
                    copied, lease = self._slots.copy(piece, target, repeats)
                    keeper.append(lease)
                else:
                    copied = self._sending.send(piece, source, target, repeats)
                pieces.append(copied)
        return TensorBuffer(card, tuple(pieces), tuple(keeper))

    def run(self, operation: Operation, card: str, buffers: Sequence[TensorBuffer], repeats: int = 1) -> TensorBuffer:
        """Run the operation on buffers of the card. The first run on a card builds it."""
        device = self._devices[card]
        arguments = [_one_tensor(buffer, device) for buffer in buffers]
        built = self._built.get((operation, card))
        if built is None:
            built = tf.function(_placed(operation, device), autograph=False)
            self._built[operation, card] = built
        size_bytes = sum(buffer.size_bytes for buffer in buffers)
        with _memory(card, size_bytes):
            for _ in range(repeats):
                result = built(*arguments)
                if operation.chained:
                    arguments[-1] = result
            settle([result], device)
        require_on([result], device)
        return TensorBuffer(card, (result,))

    def at_once(self, jobs: Sequence[Job], meanwhile: Callable[[], None] | None = None) -> list[Ran]:
        """Run all jobs at once, one thread each, and call ``meanwhile`` every ``_EVERY_S`` as they run."""

        def work(job: Job) -> Ran:
            began = self.clock_s()
            result = self.run(job.operation, job.card, job.buffers, job.repeats)
            return Ran(result, self.clock_s() - began)

        with ThreadPoolExecutor(max(len(jobs), 1), thread_name_prefix="card") as pool:
            running = [pool.submit(work, job) for job in jobs]
            pending = set(running)
            while pending:
                pending = wait(pending, timeout=_EVERY_S if meanwhile is not None else None).not_done
                if meanwhile is not None:
                    meanwhile()
            return [each.result() for each in running]

    def collective(self, kind: str, algorithm: str, arrays: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Run a collective over all cards and return what each card holds."""
        from harness.hardware.collectives.measure import Collectives

        if self._collectives is None:
            self._collectives = Collectives([self._devices[card.label] for card in self._cards])
        tensors = [self.put(array, card.label).pieces[0] for array, card in zip(arrays, self._cards, strict=True)]
        start = self.clock_s()
        try:
            results = self._collectives.run(kind, algorithm, tensors)
        except NeverReturns:
            self.spent, self._collectives = True, None
            raise
        for result, card in zip(results, self._cards, strict=True):
            settle([result], self._devices[card.label])
        self.collective_s = self.clock_s() - start
        for result, card in zip(results, self._cards, strict=True):
            require_on([result], self._devices[card.label])
        return [np.array(result.numpy()) for result in results]

    def algorithms(self) -> tuple[str, ...]:
        """Return the algorithms that collectives can use."""
        from harness.hardware.collectives.measure import algorithms_for

        return algorithms_for([self._devices[card.label] for card in self._cards])

    def _chunk_words(self, card: str) -> int:
        """Return how many words are made or compared at once on a card."""
        if card not in self._chunks:
            # For the memory of the host, the most.
            on_host = in_host_room(self._devices[card])
            most = patterns.CHUNK_WORDS if on_host else patterns.GPU_CHUNK_WORDS
            room = None if on_host else self.free_bytes(card)
            share = patterns.CHUNK_WORDS if room is None else room // 8 // patterns.CHUNKS_OF_CARD
            self._chunks[card] = max(1024, min(most, share))
        return self._chunks[card]

    def _counting_on(self, card: str, words: int) -> Any:
        """Return ascending words on the card, at most 16 MiB, made there and kept for a while.

        They are remade so that a bit which flips in them is not taken for a fault of every later copy.
        """
        there, made_s = self._counting.get(card, (None, 0.0))
        if there is None or there.shape[0] < words or self.clock_s() - made_s > _COUNTING_KEPT_S:
            # The old ones are given back first, because the card may be full of buffers.
            there = None
            self._counting.pop(card, None)
            with tf.device(self._devices[card].name):
                there = patterns.count_up(words)
            self._counting[card] = there, self.clock_s()
        return there

    def _require_room(self, device: Device, size_bytes: int) -> None:
        """Refuse too much of the host's memory: Linux would grant it and kill the process later."""
        if size_bytes < _SMALL_BYTES or not in_host_room(device):
            return
        if size_bytes > host_free_bytes() - _HOST_RESERVE_BYTES:
            self._slots.drop()
            give_back_unused_memory()
            if size_bytes > host_free_bytes() - _HOST_RESERVE_BYTES:
                raise DeviceMemoryFull(device.parsed.short, size_bytes)


@contextlib.contextmanager
def _memory(card: str, size_bytes: int) -> Iterator[None]:
    """Turn TensorFlow's error for a lack of memory into that of the interface."""
    try:
        yield
    except (tf.errors.ResourceExhaustedError, tf.errors.InternalError) as error:
        # A copy to a card without memory ends with this internal error.
        if isinstance(error, tf.errors.InternalError) and "Dst tensor is not initialized" not in str(error):
            raise
        raise DeviceMemoryFull(card, size_bytes) from error


def _one_tensor(buffer: TensorBuffer, device: Device) -> Any:
    if buffer.card != device.parsed.short:
        raise UsageError(
            f"an operation on {device.parsed.short} was given a buffer of {buffer.card}; move the buffer to "
            f"{device.parsed.short} first"
        )
    if len(buffer.pieces) == 1:
        return buffer.pieces[0]
    with tf.device(device.name):
        return tf.concat(buffer.pieces, axis=0)


def _placed(operation: Operation, device: Device) -> Any:
    def placed(*arguments: Any) -> Any:
        with tf.device(device.name):
            return operation.tensorflow(*arguments)

    return placed
