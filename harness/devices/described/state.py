"""What a described machine says through its driver libraries, and what goes wrong in its software GPUs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from harness.devices.described import driver_tables, fault_tables as tables
from harness.devices.described.description import SENSORS, Description
from harness.devices.described.driver_state import sensed_by_driver
from harness.devices.described.models import NVLINK_SHARE, PCIE_LANE_GBS, Model
from harness.devices.described.nvml_errors import NVML_ERRORS
from harness.devices.described.order import (
    BOARD_PART,
    VBIOS,
    kernels_of,
    model_of,
    multiprocessors_of,
    name_of,
    nvlinks_joining,
    nvlinks_of,
    on_bus,
    order_of,
    own_table,
    pci_of,
    serial_of,
    slice_uuid_of,
    software_mib_of,
    uuid_of,
)
from harness.softgpu.described import DescribedGpus, total_mib

_MIB = 2**20
#: CUDA's error of a machine without a GPU that it can use; and fewer multiprocessors than TensorFlow uses by default.
_NO_DEVICE, _FEWEST_MULTIPROCESSORS = 100, 8
#: The address of the switch that joins the cards.
_SWITCH = "0000:05:00.0"
#: What faults add to the sensors of a description.
_GROWTH = {
    "ecc_corrected": ("ecc_corrected_per_s", "ecc_corrected_old"),
    "ecc_uncorrected": ("ecc_uncorrected_per_s", "ecc_uncorrected_old"),
    "pcie_replays": ("pcie_replays_per_s",),
    "xid": ("xid", "xid_after_s"),
}
_NOT_SUPPORTED = f"!{NVML_ERRORS['NVML_ERROR_NOT_SUPPORTED']}"
#: A card that is hot passes its limit by so many degrees, if it keeps on working.
_OVER_C, _IDLE_C = 10.0, 34.0
_PRODUCTS = "MatMul,BatchMatMulV2,BatchMatMulV3,Einsum,_FusedMatMul,Conv2D,Conv2DBackpropInput,Conv2DBackpropFilter"
_SUMS = f"{_PRODUCTS},Sum,Mean,AddN"


def gpus_of(description: Description, path: Path | str, only: str | None = None) -> DescribedGpus:
    """Return the software GPUs of a description; with ``only``, as with that ``CUDA_VISIBLE_DEVICES``."""
    if only is not None:
        software = description.software.model_copy(update={"visible": only})
        description = description.model_copy(update={"software": software})
    order = order_of(description)
    visible = order.by_tensorflow
    if any(isinstance(fault, tables.CudaUnavailable | driver_tables.DriverNotLoaded) for fault in description.fault):
        visible = ()
    values = {**_system(description, visible), **_nvml_errors(description, None)}
    if "error.nvmlInit" not in values:
        values |= _cards(description)
    return DescribedGpus(
        count=len(visible),
        sizes_mib=tuple(software_mib_of(description, slot) for slot in visible),
        name=str(path),
        driver=tuple((key, str(value)) for key, value in values.items()),
        faults=tuple(_executed(description, visible)),
        numbers=tuple(order.by_driver.index(slot) for slot in visible),
        visible=description.software.visible,
        log=tuple(_log(description)),
    )


def _log(description: Description) -> Iterator[str]:
    """Yield what TensorFlow writes of the small cards that it leaves out (its gpu_device.cc)."""
    for fault in description.fault:
        if isinstance(fault, tables.Missing):
            count = multiprocessors_of(description, fault.card)
            if count is not None and count < _FEWEST_MULTIPROCESSORS:
                capability = model_of(description, fault.card).compute_capability
                name, pci = name_of(description, fault.card), pci_of(fault.card).lower()
                yield (
                    f"I tensorflow/core/common_runtime/gpu/gpu_device.cc:2265] Ignoring visible gpu device (device: "
                    f"{fault.card}, name: {name}, pci bus id: {pci}, compute capability: {capability}) with core "
                    f"count: {count}. The minimum required count is "
                    f"{_FEWEST_MULTIPROCESSORS}. You can adjust this requirement with the env var "
                    "TF_MIN_GPU_MULTIPROCESSOR_COUNT."
                )


def _system(description: Description, visible: tuple[int, ...]) -> dict[str, object]:
    software = description.software
    old = next((fault for fault in description.fault if isinstance(fault, tables.DriverTooOld)), None)
    major, _, minor = (old.driver_cuda if old else software.driver_cuda).partition(".")
    broken = next((fault.code for fault in description.fault if isinstance(fault, tables.CudaUnavailable)), 0)
    if any(isinstance(fault, driver_tables.DriverNotLoaded) for fault in description.fault):
        broken = _NO_DEVICE
    sass, ptx = kernels_of(description)
    values: dict[str, object] = {
        "driver": old.driver if old else software.driver,
        "driver_cuda": 1000 * int(major) + 10 * int(minor or 0),
        "cards": len(order_of(description).by_driver),
        "bus": " ".join(map(pci_of, on_bus(description))),
        "container": int(software.container),
        "cuda_devices": len(visible),
        "cuinit": broken,
        "cudnn": software.cudnn,
        "nccl": software.nccl,
        "kernels_sass": " ".join(sass),
        "kernels_ptx": " ".join(ptx),
    }
    for fault in description.fault:
        if isinstance(fault, tables.LibraryMissing):
            values["missing_libraries"] = " ".join([*str(values.get("missing_libraries", "")).split(), fault.library])
            values = {key: value for key, value in values.items() if f"lib{key}.so" not in fault.library}
    for hang in description.fault:
        if isinstance(hang, driver_tables.CollectiveHang):
            values[f"hangs.{hang.algorithm}"] = hang.collective or "all-reduce all-gather reduce-scatter broadcast"
    for at, slot in enumerate(visible):
        values |= {
            f"cuda.{at}.uuid": uuid_of(slot),
            f"cuda.{at}.pci": pci_of(slot),
            f"cuda.{at}.name": name_of(description, slot),
        }
        if description.cards.slices:
            values[f"cuda.{at}.mig_uuid"] = slice_uuid_of(slot, 0)
    return values


def _cards(description: Description) -> dict[str, object]:
    values: dict[str, object] = {}
    for number, slot in enumerate(order_of(description).by_driver):
        card = _identity(description, slot)
        if description.cards.sensors:
            card |= _sensors(description, slot)
            for sensor in description.cards.without:
                card |= dict.fromkeys(SENSORS[sensor], _NOT_SUPPORTED)
                for key in _GROWTH.get(sensor, ()):
                    card.pop(key, None)
        errors = _nvml_errors(description, slot)
        if "error" in errors:
            # It never says anything else.
            card = {key: card[key] for key in ("uuid", "serial", "pci")}
        values |= {f"card.{number}.{key}": value for key, value in (card | errors).items()}
    return values


def _nvml_errors(description: Description, slot: int | None) -> dict[str, object]:
    """Return the errors with which NVML answers for a card, or for all (``None``), by function or for all functions."""
    errors: dict[str, object] = {}
    for fault in description.fault:
        if isinstance(fault, tables.NvmlError) and fault.card == slot:
            errors["error" if fault.call is None else f"error.{fault.call}"] = NVML_ERRORS[fault.error]
        elif isinstance(fault, tables.Lost) and fault.card == slot and not fault.after_ops:
            errors["error"] = NVML_ERRORS["NVML_ERROR_GPU_IS_LOST"]
        elif isinstance(fault, driver_tables.DriverNotLoaded) and slot is None:
            errors["error.nvmlInit"] = NVML_ERRORS["NVML_ERROR_DRIVER_NOT_LOADED"]
    return errors


def _identity(description: Description, slot: int) -> dict[str, object]:
    own = own_table(description, slot)
    total = total_mib(software_mib_of(description, slot)) * _MIB
    card: dict[str, object] = {
        "name": name_of(description, slot),
        "uuid": uuid_of(slot),
        "serial": serial_of(slot),
        "vbios": (own and own.vbios) or VBIOS,
        "board_part": (own and own.board_part) or BOARD_PART,
        "pci": pci_of(slot),
        "compute_capability": model_of(description, slot).compute_capability,
        "memory": total,
        "processes": "",
        "compute_mode": 3 if description.cards.exclusive else 0,
        "persistence": 1,
        "mig": int(description.cards.slices > 0),
        "slices": description.cards.slices,
    }
    for number in range(description.cards.slices):
        memory = total // description.cards.slices
        card |= {f"slice.{number}.uuid": slice_uuid_of(slot, number), f"slice.{number}.memory": memory}
    if description.cards.on_chip:
        card["memory"] = _NOT_SUPPORTED
    for fault in _on(description, slot):
        if isinstance(fault, driver_tables.PersistenceOff):
            card["persistence"] = 0
        elif isinstance(fault, driver_tables.FabricState):
            card["fabric"] = driver_tables.FABRIC_STATES[fault.state]
        elif isinstance(fault, tables.MemoryHeld):
            held = int(fault.share * total)
            card |= {"memory_used": held, "processes": f"{fault.process}:{held}"}
    return card


def _sensors(description: Description, slot: int) -> dict[str, object]:
    model = replace(model_of(description, slot), nvlinks=nvlinks_of(description, slot))
    card: dict[str, object] = {
        "clock_max": model.clock_max_mhz,
        "idle_c": _IDLE_C,
        "top_c": _IDLE_C + 33,
        "slowdown_c": model.temperature_slowdown_c,
        "power_limit": model.power_limit_w * 1000,
        "power_default": model.power_limit_w * 1000,
        "ecc_mode": 1,
        "ecc_corrected": 0,
        "ecc_uncorrected": 0,
        "ecc_corrected_old": tables.OLD_CORRECTED,
        "pcie_generation": model.pcie_generation,
        "pcie_generation_max": model.pcie_generation,
        "pcie_width": model.pcie_width,
        "pcie_width_max": model.pcie_width,
        "pcie_replays": 0,
        "event_types": 31,
        **_repairs(model),
    }
    if model.nvlinks:
        card |= {
            "nvlinks": ",".join("1" * model.nvlinks),
            "nvlink_version": 4,
            "field.90": model.link_gbs / NVLINK_SHARE * 1000,
        }
        ends = [pci_of(end) for each in description.cards.bridges if slot in each[:2] for end in _other(each, slot)]
        card["nvlink_to"] = ",".join(ends or [_SWITCH] * model.nvlinks)
    if description.cards.on_chip:
        # What such a card says of a link that it does not use.
        card |= {"pcie_generation": 1, "pcie_width": 1}
    if model.nvlinks and any(isinstance(fault, driver_tables.NvlinkErrors) for fault in description.fault):
        card |= {f"nvlink_errors.{kind}": 0 for kind in driver_tables.LINK_COUNTERS.values()}
    for fault in _on(description, slot):
        card |= _sensed(fault, model) | sensed_by_driver(fault)
    return card


def _other(bridge: list[int], slot: int) -> list[int]:
    """Return the card at the other end of each link of a bridge."""
    one, other, links = bridge
    return [other if slot == one else one] * links


def remaps_rows(model: Model) -> bool:
    """Whether the card mends its memory by remapping rows, as from the A100 on; before, cards retire pages."""
    return float(model.compute_capability) >= 8


def _repairs(model: Model) -> dict[str, object]:
    if remaps_rows(model):
        return {"remapped_rows": "0,0,0,0", "field.230": 0}
    return {"retired_pages": "0,0", "retired_pending": 0}


def _sensed(fault: tables.FaultTable, model: Model) -> dict[str, object]:
    if isinstance(fault, tables.LinkWidth):
        return {"pcie_width": min(fault.width, model.pcie_width)}
    if isinstance(fault, tables.LinkGeneration):
        return {"pcie_generation": min(fault.generation, model.pcie_generation)}
    if isinstance(fault, tables.Hot):
        share = (model.temperature_slowdown_c - _IDLE_C) / (model.temperature_slowdown_c + _OVER_C - _IDLE_C)
        # The time constant with which the card has warmed up by this share after so many seconds.
        warming_s = -fault.slowdown_after_s / math.log(1 - share)
        return {"top_c": model.temperature_slowdown_c + _OVER_C, "warming_s": warming_s}
    if isinstance(fault, tables.Ecc):
        growth: dict[str, object] = {
            "ecc_corrected_per_s": fault.corrected_per_s,
            "ecc_uncorrected_per_s": fault.uncorrected_per_s,
            "ecc_uncorrected_old": fault.old_uncorrected,
        }
        return {key: value for key, value in growth.items() if value} | {"ecc_corrected_old": fault.old_corrected}
    if isinstance(fault, tables.RowRemap):
        pending = fault.state == "pending"
        return {"remapped_rows": "0,1,1,0" if pending else "0,8,0,1", "field.230": 1 if pending else 0}
    if isinstance(fault, tables.RetiredPages):
        return {"retired_pages": f"0,{fault.count}", "retired_pending": int(fault.pending)}
    if isinstance(fault, tables.PowerLimit):
        return {"power_limit": min(fault.watts, model.power_limit_w) * 1000}
    if isinstance(fault, tables.Replays):
        return {"pcie_replays_per_s": fault.per_s}
    if isinstance(fault, tables.NvlinkDown) and model.nvlinks:
        up = max(0, model.nvlinks - fault.links)
        return {"nvlinks": ",".join("1" * up + "0" * (model.nvlinks - up))}
    if isinstance(fault, tables.Xid):
        return {"xid": fault.code, "xid_after_s": fault.after_s}
    return {}


def _on(description: Description, slot: int) -> Iterator[tables.FaultTable]:
    return (fault for fault in description.fault if getattr(fault, "card", None) == slot)


def _executed(description: Description, visible: tuple[int, ...]) -> Iterator[str]:
    """Yield the faults that the software GPUs execute, as lines for ``softgpu/source/faults.h``."""
    yield f"seed value={description.seed}"
    for fault in description.fault:
        if (slot := getattr(fault, "card", None)) is not None and slot in visible:
            if (line := _on_device(fault, description)) is not None:
                yield f"{line} device={visible.index(slot)}"
            for end, factor in _slower_links(fault, description, visible):
                yield f"link from={visible.index(slot)} to={end} factor={factor}"
        elif isinstance(fault, tables.OnPair) and set(fault.pair) <= set(visible):
            ends = f"from={visible.index(fault.pair[0])} to={visible.index(fault.pair[1])}"
            mode = fault.kind.removeprefix("pair-")
            yield f"copy {ends} mode={mode} p={fault.probability}"


def _slower_links(
    fault: tables.FaultTable, description: Description, visible: tuple[int, ...]
) -> Iterator[tuple[int, float]]:
    """Yield the other ends of the links that a fault slows down, -1 for the host, and what is left of their rate."""
    if isinstance(fault, tables.NvlinkDown):
        for end, slot in enumerate(visible):
            if slot != fault.card and (links := nvlinks_joining(description, fault.card, slot)) > 1:
                yield end, max(links - fault.links, 1) / links
        return
    if isinstance(fault, tables.LinkWidth):
        factor = fault.width / model_of(description, fault.card).pcie_width
    elif isinstance(fault, tables.LinkGeneration):
        whole = PCIE_LANE_GBS[model_of(description, fault.card).pcie_generation]
        factor = PCIE_LANE_GBS[fault.generation] / whole
    else:
        return
    yield -1, factor
    for end, slot in enumerate(visible):
        # Without NVLinks between them, cards copy over PCIe.
        if slot != fault.card and not nvlinks_joining(description, fault.card, slot):
            yield end, factor


def _on_device(fault: tables.FaultTable, description: Description) -> str | None:
    if isinstance(fault, tables.BitFlip):
        shape = f"bits={fault.bits} run={fault.run} least={fault.least_elements}"
        shape += f" elements={','.join(map(str, fault.elements))}" if fault.elements else ""
        return f"flip op={fault.op or _PRODUCTS} dtype={_dtype(fault.dtype)} p={fault.probability} {shape}"
    if isinstance(fault, tables.WrongCard):
        return f"flip op={_PRODUCTS} dtype=* p=1 at=3"
    if isinstance(fault, tables.WrongArithmetic):
        return f"scale op={_PRODUCTS} dtype={_dtype(fault.dtype)} error={fault.relative_error}"
    if isinstance(fault, tables.NoWrite):
        return f"garbage op={fault.op} dtype=* p={fault.probability}"
    if isinstance(fault, tables.Nondeterministic):
        return f"jitter op={_SUMS} dtype=* p={fault.probability}"
    if isinstance(fault, tables.Slow):
        return f"slow factor={fault.factor}"
    if isinstance(fault, tables.Leak):
        return f"leak op={_PRODUCTS} bytes={fault.bytes_per_step}"
    if isinstance(fault, tables.Lost):
        return f"lost after={fault.after_ops}"
    if isinstance(fault, tables.StuckBit):
        return f"stuck word={fault.word} bit={fault.bit} value={fault.value}"
    if isinstance(fault, tables.StuckAllocation):
        return f"room bytes={int((1 - fault.share) * software_mib_of(description, fault.card) * _MIB)}"
    if isinstance(fault, tables.CollectiveDrop):
        return f"drop hint={fault.algorithm or ''}"
    return None


def _dtype(name: str | None) -> str:
    known = {None: "*", "float32": "float", "float64": "double", "float16": "half"}
    return known.get(name, str(name))
