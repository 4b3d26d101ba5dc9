// A stand-in for libnvidia-ml.so.1 that answers from a description of a machine. Every question about a card first looks
// for a value under its own name (`card.3.temperature 91`); `!15` in the place of a value is that error of NVML. What is
// not in the description is NOT_SUPPORTED, as on a card without that sensor. `error.nvmlInit 18` is the error of a
// function, `card.3.error.nvmlDeviceGetUUID 15` of a function for a card, `card.3.error 15` of all functions for a card.
// drivers.py reads from this file which functions there are.
#include "state.h"

#include <atomic>
#include <iterator>

namespace {

using driver::State;

enum Return {
  kSuccess = 0, kUninitialized = 1, kInvalid = 2, kNotSupported = 3, kNotFound = 6, kTooSmall = 7, kTimeout = 10,
  kLost = 15,
};

// A card, or a slice of one under MIG.
struct Card {
  int index;
  int slice = -1;
};
using Device = Card*;
constexpr int kMostSlices = 7;
Card cards[driver::kMostCards];
Card slices[driver::kMostCards][kMostSlices];
int initialized = 0;

std::string Key(Device card, const std::string& name) {
  const std::string slice = card->slice < 0 ? "" : "slice." + std::to_string(card->slice) + ".";
  return "card." + std::to_string(card->index) + "." + slice + name;
}

int Count() { return static_cast<int>(State::Get().Number("cards", 0)); }

// The caller, as a default argument: the function of NVML that a program has called.
#define CALL const char* call = __builtin_FUNCTION()

// The error with which a function answers. Its versions are one function.
int Failure(const std::string& of, CALL) {
  std::string name = call;
  for (const char* suffix : {"_v2", "_v3", "WithFlags"}) {
    const size_t at = name.rfind(suffix);
    if (at != std::string::npos && at + strlen(suffix) == name.size()) name.resize(at);
  }
  return static_cast<int>(State::Get().Number(of + "error." + name, kSuccess));
}

// The error with which the system answers.
int Ready(CALL) { return initialized == 0 ? kUninitialized : Failure("", call); }

// The error with which the card answers.
int Health(Device card, CALL) {
  if (const int error = Ready(call)) return error;
  if (card == nullptr || card->index >= Count()) return kInvalid;
  const std::string of = "card." + std::to_string(card->index) + ".";
  if (const int error = Failure(of, call)) return error;
  std::string value;
  if (State::Get().Find(of + "error", &value)) return atoi(value.c_str());
  return State::Get().Lost(card->index) ? kLost : kSuccess;
}

int Text(Device card, const char* name, std::string* value, CALL) {
  if (const int ill = Health(card, call)) return ill;
  if (!State::Get().Find(Key(card, name), value)) return kNotSupported;
  return !value->empty() && (*value)[0] == '!' ? atoi(value->c_str() + 1) : kSuccess;
}

int Copy(Device card, const char* name, char* buffer, unsigned length, CALL) {
  std::string value;
  if (const int error = Text(card, name, &value, call)) return error;
  if (value.size() + 1 > length) return kTooSmall;
  strcpy(buffer, value.c_str());
  return kSuccess;
}

template <typename T>
int Number(Device card, const std::string& name, T* value, CALL) {
  std::string text;
  if (const int error = Text(card, name.c_str(), &text, call)) return error;
  *value = static_cast<T>(strtod(text.c_str(), nullptr));
  return kSuccess;
}

double Fact(Device card, const char* name, double otherwise) { return State::Get().Number(Key(card, name), otherwise); }

// ---- a card under load: it warms up, and slows down above its limit

double Temperature(Device card) {
  const double idle = Fact(card, "idle_c", 34), top = Fact(card, "top_c", 67), warming = Fact(card, "warming_s", 15);
  return idle + (top - idle) * (1 - std::exp(-State::Get().WorkedSeconds(card->index) / warming));
}

// The clock as a share of the highest one.
double ClockShare(Device card) {
  const double over = Temperature(card) - Fact(card, "slowdown_c", 87);
  return over <= 0 ? 1 : std::max(0.55, 1 - 0.45 * over / 10);
}

bool Busy(Device card) { return State::Get().Busy(card->index); }

// A value of the description where there is one, else what `model` says; only on a card that has the sensor `gate`.
template <typename T, typename Model>
int Sensor(Device card, const char* name, const char* gate, T* value, Model model, CALL) {
  const int error = Number(card, name, value, call);
  if (error != kNotSupported) return error;
  double unused;
  if (const int absent = Number(card, gate, &unused, call)) return absent;
  *value = static_cast<T>(model());
  return kSuccess;
}

// A count that grows with the work of the card.
int Counter(Device card, const char* name, const char* rate, uint64_t* value, CALL) {
  if (const int error = Number(card, name, value, call)) return error;
  *value += static_cast<uint64_t>(Fact(card, rate, 0) * State::Get().WorkedSeconds(card->index));
  return kSuccess;
}

struct PciInfo {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char bus_id[32];
};

int FillPci(const std::string& text, PciInfo* pci) {
  *pci = {};
  unsigned domain = 0, bus = 0, device = 0;
  if (sscanf(text.c_str(), "%x:%x:%x", &domain, &bus, &device) != 3) return kInvalid;
  pci->domain = domain, pci->bus = bus, pci->device = device;
  snprintf(pci->bus_id, sizeof(pci->bus_id), "%08X:%02X:%02X.0", domain, bus, device);
  snprintf(pci->legacy, sizeof(pci->legacy), "%04X:%02X:%02X.0", domain & 0xffff, bus, device);
  return kSuccess;
}


struct Events {
  uint64_t types[driver::kMostCards] = {};
  bool told[driver::kMostCards] = {};
};

template <typename Match>
int FindCard(Device* device, Match match, CALL) {
  if (const int error = Ready(call)) return error;
  for (int index = 0; index < Count(); index++) {
    cards[index].index = index;
    if (match(&cards[index])) {
      *device = &cards[index];
      return Health(*device, call);
    }
  }
  return kNotFound;
}

bool Is(Device card, const char* name, const char* wanted) {
  std::string value;
  return State::Get().Find(Key(card, name), &value) && strcasecmp(value.c_str(), wanted) == 0;
}

}  // namespace

extern "C" {

// Not part of NVML: the description to answer from.
void harness_described_machine(const char* path) { State::Get().Open(path); }

// ---- the library and the system

int nvmlInitWithFlags(unsigned) {
  if (!State::Get().Known()) return 9;  // DRIVER_NOT_LOADED
  if (const int error = Failure("")) return error;
  initialized++;
  return kSuccess;
}
int nvmlInit_v2() { return nvmlInitWithFlags(0); }
int nvmlShutdown() {
  if (const int error = Ready()) return error;
  initialized--;
  return kSuccess;
}
const char* nvmlErrorString(int code) {
  // nvidia-ml-py has texts of its own for most.
  static const char* const texts[] = {
      "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions", "Already Initialized",
      "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded", "Timeout",
      "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found", "Corrupted infoROM",
      "GPU is lost", "GPU requires reset", "The operating system has blocked the request",
      "Driver/library version mismatch", "In use by another client", "Insufficient Memory", "No data",
      "The requested vgpu operation is not available on target device, because ECC is enabled",
      "Insufficient Resources", "The requested frequency is not supported", "The argument version does not match",
      "The requested functionality has been deprecated", "The system is not ready for the request",
      "No GPUs were found", "The resource is not in the state that the operation needs", "The reset type is not supported",
  };
  return code >= 0 && code < static_cast<int>(std::size(texts)) ? texts[code] : "Unknown Error";
}

static int SystemText(const char* key, char* buffer, unsigned length, CALL) {
  if (const int error = Ready(call)) return error;
  std::string value;
  if (!State::Get().Find(key, &value)) return kNotSupported;
  if (value.size() + 1 > length) return kTooSmall;
  strcpy(buffer, value.c_str());
  return kSuccess;
}
int nvmlSystemGetDriverVersion(char* buffer, unsigned length) { return SystemText("driver", buffer, length); }
int nvmlSystemGetNVMLVersion(char* buffer, unsigned length) { return SystemText("nvml", buffer, length); }
int nvmlSystemGetCudaDriverVersion(int* version) {
  if (const int error = Ready()) return error;
  *version = static_cast<int>(State::Get().Number("driver_cuda", 0));
  return *version == 0 ? kNotSupported : kSuccess;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) { return nvmlSystemGetCudaDriverVersion(version); }

int nvmlDeviceGetCount_v2(unsigned* count) {
  if (const int error = Ready()) return error;
  *count = Count();
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  if (const int error = Ready()) return error;
  if (static_cast<int>(index) >= Count()) return kInvalid;
  return FindCard(device, [index](Device card) { return card->index == static_cast<int>(index); });
}
int nvmlDeviceGetMaxMigDeviceCount(Device card, unsigned* count) {
  *count = kMostSlices;
  return Health(card);
}
int nvmlDeviceGetMigDeviceHandleByIndex(Device card, unsigned number, Device* device) {
  unsigned count = 0;
  if (const int error = Number(card, "slices", &count)) return error;
  if (number >= count || number >= kMostSlices) return kNotFound;
  *device = &slices[card->index][number];
  **device = {card->index, static_cast<int>(number)};
  return kSuccess;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device slice, Device* device) {
  if (slice == nullptr || slice->slice < 0) return kInvalid;
  return FindCard(device, [slice](Device card) { return card->index == slice->index; });
}
int nvmlDeviceGetHandleByUUID(const char* uuid, Device* device) {
  for (unsigned index = 0; index < static_cast<unsigned>(Count()); index++) {
    cards[index].index = index;
    for (unsigned slice = 0; nvmlDeviceGetMigDeviceHandleByIndex(&cards[index], slice, device) == kSuccess; slice++) {
      if (Is(*device, "uuid", uuid)) return kSuccess;
    }
  }
  return FindCard(device, [uuid](Device card) { return Is(card, "uuid", uuid); });
}
int nvmlDeviceGetHandleBySerial(const char* serial, Device* device) {
  return FindCard(device, [serial](Device card) { return Is(card, "serial", serial); });
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, Device* device) {
  PciInfo wanted;
  if (FillPci(bus, &wanted)) return kInvalid;
  return FindCard(device, [&wanted](Device card) {
    std::string value;
    PciInfo pci;
    return State::Get().Find(Key(card, "pci"), &value) && !FillPci(value, &pci) && !strcmp(pci.bus_id, wanted.bus_id);
  });
}

// ---- identity

int nvmlDeviceGetIndex(Device card, unsigned* index) {
  if (const int ill = Health(card)) return ill;
  *index = card->index;
  return kSuccess;
}
int nvmlDeviceGetName(Device card, char* buffer, unsigned length) { return Copy(card, "name", buffer, length); }
int nvmlDeviceGetUUID(Device card, char* buffer, unsigned length) { return Copy(card, "uuid", buffer, length); }
int nvmlDeviceGetSerial(Device card, char* buffer, unsigned length) { return Copy(card, "serial", buffer, length); }
int nvmlDeviceGetVbiosVersion(Device card, char* buffer, unsigned length) { return Copy(card, "vbios", buffer, length); }
int nvmlDeviceGetBoardPartNumber(Device card, char* buffer, unsigned length) {
  return Copy(card, "board_part", buffer, length);
}
int nvmlDeviceGetPciInfo_v3(Device card, PciInfo* pci) {
  std::string value;
  if (const int error = Text(card, "pci", &value)) return error;
  return FillPci(value, pci);
}
int nvmlDeviceGetMinorNumber(Device card, unsigned* minor) {
  if (const int ill = Health(card)) return ill;
  *minor = card->index;
  return kSuccess;
}
int nvmlDeviceGetModuleId(Device card, unsigned* module) { return Number(card, "module", module); }
int nvmlDeviceGetCudaComputeCapability(Device card, int* major, int* minor) {
  std::string value;
  if (const int error = Text(card, "compute_capability", &value)) return error;
  return sscanf(value.c_str(), "%d.%d", major, minor) == 2 ? kSuccess : kInvalid;
}

// ---- memory and processes

struct Memory {
  uint64_t total, free, used;
};
struct Memory2 {
  unsigned version;
  uint64_t total, reserved, free, used;
};
int nvmlDeviceGetMemoryInfo(Device card, Memory* memory) {
  if (const int error = Number(card, "memory", &memory->total)) return error;
  const uint64_t used = static_cast<uint64_t>(Fact(card, "memory_used", 0));
  memory->used = std::min(used, memory->total);
  memory->free = memory->total - memory->used;
  return kSuccess;
}
int nvmlDeviceGetMemoryInfo_v2(Device card, Memory2* memory) {
  Memory plain;
  if (const int error = nvmlDeviceGetMemoryInfo(card, &plain)) return error;
  memory->total = plain.total, memory->reserved = 0, memory->free = plain.free, memory->used = plain.used;
  return kSuccess;
}

struct Process {
  unsigned pid;
  uint64_t used;
  unsigned gpu_instance, compute_instance;
};
// `processes` is `pid:bytes,pid:bytes`; an empty value means none.
int nvmlDeviceGetComputeRunningProcesses_v3(Device card, unsigned* count, Process* processes) {
  std::string text;
  if (const int error = Text(card, "processes", &text)) return error;
  unsigned found = 0;
  for (const char* at = text.c_str(); *at;) {
    char* end;
    const unsigned pid = strtoul(at, &end, 10);
    const uint64_t used = *end == ':' ? strtoull(end + 1, &end, 10) : ~0ull;
    if (found < *count && processes != nullptr) processes[found] = {pid, used, ~0u, ~0u};
    found++;
    if (*end != ',') break;
    at = end + 1;
  }
  const bool fits = found <= *count;
  *count = found;
  return fits ? kSuccess : kTooSmall;
}
int nvmlDeviceGetComputeRunningProcesses_v2(Device card, unsigned* count, Process* processes) {
  return nvmlDeviceGetComputeRunningProcesses_v3(card, count, processes);
}
int nvmlDeviceGetComputeMode(Device card, unsigned* mode) { return Number(card, "compute_mode", mode); }
int nvmlDeviceGetPersistenceMode(Device card, unsigned* mode) { return Number(card, "persistence", mode); }
int nvmlDeviceGetMigMode(Device card, unsigned* current, unsigned* pending) {
  const int error = Number(card, "mig", current);
  *pending = *current;
  return error;
}

// ---- clocks, heat, power

int nvmlDeviceGetMaxClockInfo(Device card, unsigned, unsigned* mhz) { return Number(card, "clock_max", mhz); }
// Kind 2 is the clock of the memory.
int nvmlDeviceGetClockInfo(Device card, unsigned kind, unsigned* mhz) {
  return Sensor(card, kind == 2 ? "memory_clock" : "clock", "clock_max", mhz,
                [card] { return Fact(card, "clock_max", 0) * (Busy(card) ? 0.97 * ClockShare(card) : 0.2); });
}
int nvmlDeviceGetTemperature(Device card, unsigned, unsigned* celsius) {
  return Sensor(card, "temperature", "idle_c", celsius, [card] { return Temperature(card); });
}
int nvmlDeviceGetTemperatureThreshold(Device card, unsigned kind, unsigned* celsius) {
  if (kind == 1) return Number(card, "slowdown_c", celsius);
  return Number(card, "threshold." + std::to_string(kind), celsius);
}
int nvmlDeviceGetEnforcedPowerLimit(Device card, unsigned* milliwatts) { return Number(card, "power_limit", milliwatts); }
int nvmlDeviceGetPowerManagementLimit(Device card, unsigned* milliwatts) { return Number(card, "power_limit", milliwatts); }
int nvmlDeviceGetPowerManagementDefaultLimit(Device card, unsigned* milliwatts) {
  return Number(card, "power_default", milliwatts);
}
int nvmlDeviceGetPowerUsage(Device card, unsigned* milliwatts) {
  return Sensor(card, "power", "power_limit", milliwatts,
                [card] { return Fact(card, "power_limit", 0) * (Busy(card) ? 0.9 * ClockShare(card) : 0.12); });
}
struct Utilization {
  unsigned gpu, memory;
};
int nvmlDeviceGetUtilizationRates(Device card, Utilization* utilization) {
  utilization->memory = 0;
  return Sensor(card, "utilization", "clock_max", &utilization->gpu, [card] { return Busy(card) ? 100 : 0; });
}
// Software and hardware thermal slowdown, or idle. `thermal_reading 5` is a thermal slowdown in the fifth reading alone.
static int Reasons(Device card, uint64_t* reasons, CALL) {
  static std::atomic<int> asked[driver::kMostCards];
  const int reading = static_cast<int>(Fact(card, "thermal_reading", 0));
  if (reading != 0 && ++asked[card->index] == reading) {
    *reasons = 0x20;
    return Health(card, call);
  }
  return Sensor(card, "throttle", "slowdown_c", reasons,
                [card] { return ClockShare(card) < 1 ? 0x60 : Busy(card) ? 0 : 1; }, call);
}
int nvmlDeviceGetCurrentClocksEventReasons(Device card, uint64_t* reasons) { return Reasons(card, reasons); }
int nvmlDeviceGetCurrentClocksThrottleReasons(Device card, uint64_t* reasons) { return Reasons(card, reasons); }
int nvmlDeviceGetSupportedClocksEventReasons(Device card, uint64_t* reasons) {
  *reasons = 0x1ff;
  return Health(card);
}

// ---- errors of the memory

int nvmlDeviceGetEccMode(Device card, unsigned* current, unsigned* pending) {
  const int error = Number(card, "ecc_mode", current);
  *pending = *current;
  return error;
}
// kind: 0 corrected, 1 uncorrected. counter: 0 since the driver was loaded, 1 ever.
int nvmlDeviceGetTotalEccErrors(Device card, unsigned kind, unsigned counter, uint64_t* count) {
  if (kind > 1 || counter > 1) return kInvalid;
  const char* name = kind == 0 ? "ecc_corrected" : "ecc_uncorrected";
  if (const int error = Counter(card, name, kind == 0 ? "ecc_corrected_per_s" : "ecc_uncorrected_per_s", count)) {
    return error;
  }
  if (counter == 1) *count += static_cast<uint64_t>(Fact(card, kind == 0 ? "ecc_corrected_old" : "ecc_uncorrected_old", 0));
  return kSuccess;
}
// `remapped_rows` is `corrected,uncorrected,pending,failed`.
int nvmlDeviceGetRemappedRows(Device card, unsigned* corrected, unsigned* uncorrected, unsigned* pending, unsigned* failed) {
  std::string text;
  if (const int error = Text(card, "remapped_rows", &text)) return error;
  return sscanf(text.c_str(), "%u,%u,%u,%u", corrected, uncorrected, pending, failed) == 4 ? kSuccess : kInvalid;
}
// `retired_pages` is a count by cause: `single,double`.
int nvmlDeviceGetRetiredPages(Device card, unsigned cause, unsigned* count, uint64_t* addresses) {
  std::string text;
  if (const int error = Text(card, "retired_pages", &text)) return error;
  unsigned by_cause[2] = {};
  sscanf(text.c_str(), "%u,%u", &by_cause[0], &by_cause[1]);
  if (cause > 1) return kInvalid;
  const unsigned room = *count;
  *count = by_cause[cause];
  if (*count > room || addresses == nullptr) return *count == 0 ? kSuccess : kTooSmall;
  for (unsigned i = 0; i < *count; i++) addresses[i] = 0x1000ull * (i + 1);
  return kSuccess;
}
int nvmlDeviceGetRetiredPagesPendingStatus(Device card, unsigned* pending) {
  return Number(card, "retired_pending", pending);
}

struct Field {
  unsigned id, scope;
  int64_t timestamp, latency;
  int type, result;
  union {
    double real;
    unsigned small;
    uint64_t large;
  } value;
};
int nvmlDeviceGetFieldValues(Device card, int count, Field* fields) {
  if (const int ill = Health(card)) return ill;
  for (int i = 0; i < count; i++) {
    fields[i].type = 3;  // unsigned long long
    fields[i].value.large = 0;
    fields[i].result = Number(card, "field." + std::to_string(fields[i].id), &fields[i].value.large);
  }
  return kSuccess;
}

// ---- links

int nvmlDeviceGetMaxPcieLinkGeneration(Device card, unsigned* value) { return Number(card, "pcie_generation_max", value); }
int nvmlDeviceGetGpuMaxPcieLinkGeneration(Device card, unsigned* value) { return Number(card, "pcie_generation_card", value); }
int nvmlDeviceGetMaxPcieLinkWidth(Device card, unsigned* value) { return Number(card, "pcie_width_max", value); }
int nvmlDeviceGetCurrPcieLinkWidth(Device card, unsigned* value) { return Number(card, "pcie_width", value); }
int nvmlDeviceGetCurrPcieLinkGeneration(Device card, unsigned* value) {
  if (const int error = Number(card, "pcie_generation", value)) return error;
  if (!Busy(card) && Fact(card, "pcie_sleeps", 1) != 0) *value = 1;
  return kSuccess;
}
int nvmlDeviceGetPcieReplayCounter(Device card, unsigned* value) {
  uint64_t count = 0;
  const int error = Counter(card, "pcie_replays", "pcie_replays_per_s", &count);
  *value = static_cast<unsigned>(count);
  return error;
}
// `nvlinks` is the state of each link: 1 up, 0 down, such as `1,1,0,1`.
int nvmlDeviceGetNvLinkState(Device card, unsigned link, unsigned* up) {
  std::string text;
  if (const int error = Text(card, "nvlinks", &text)) return error;
  if (2 * link >= text.size()) return text.empty() ? kNotSupported : kInvalid;
  *up = text[2 * link] == '1';
  return kSuccess;
}
int nvmlDeviceGetNvLinkVersion(Device card, unsigned, unsigned* version) { return Number(card, "nvlink_version", version); }
// Of a link, or of all links of the card.
int nvmlDeviceGetNvLinkErrorCounter(Device card, unsigned link, unsigned kind, uint64_t* count) {
  const std::string of = "." + std::to_string(kind) + "." + std::to_string(link);
  std::string value;
  if (card != nullptr && State::Get().Find(Key(card, "nvlink_errors" + of), &value)) {
    return Counter(card, ("nvlink_errors" + of).c_str(), ("nvlink_errors_per_s" + of).c_str(), count);
  }
  return Counter(card, ("nvlink_errors." + std::to_string(kind)).c_str(), "nvlink_errors_per_s", count);
}
// `nvlink_to` is the bus id at the other end of each link, with commas between: a switch or another card.
int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device card, unsigned link, PciInfo* pci) {
  std::string text;
  if (const int error = Text(card, "nvlink_to", &text)) return error;
  size_t at = 0;
  for (unsigned i = 0; i < link; i++) {
    at = text.find(',', at);
    if (at++ == std::string::npos) return kInvalid;
  }
  return FillPci(text.substr(at, text.find(',', at) - at), pci);
}

struct FabricInfo {
  unsigned char cluster[16];
  int status;
  unsigned clique, state;
};
// `fabric` is the state: 1 not started, 2 in progress, 3 completed.
int nvmlDeviceGetGpuFabricInfo(Device card, FabricInfo* info) {
  unsigned state = 0;
  if (const int error = Number(card, "fabric", &state)) return error;
  *info = {};
  info->state = state;
  return kSuccess;
}

// ---- events

int nvmlEventSetCreate(Events** events) {
  if (const int error = Ready()) return error;
  *events = new Events;
  return kSuccess;
}
int nvmlEventSetFree(Events* events) {
  if (const int error = Ready()) return error;
  delete events;
  return kSuccess;
}
int nvmlDeviceGetSupportedEventTypes(Device card, uint64_t* types) { return Number(card, "event_types", types); }
int nvmlDeviceRegisterEvents(Device card, uint64_t types, Events* events) {
  uint64_t supported = 0;
  if (const int error = Number(card, "event_types", &supported)) return error;
  if (types & ~supported) return kNotSupported;
  events->types[card->index] = types;
  return kSuccess;
}
struct Event {
  Device device;
  uint64_t type, data;
  unsigned gpu_instance, compute_instance;
};
// A critical error, once, when the card has worked for `xid_after_s`. A card tells of it also when it is lost then.
int nvmlEventSetWait_v2(Events* events, Event* event, unsigned) {
  constexpr uint64_t kXid = 8;
  if (const int error = Ready()) return error;
  for (int index = 0; index < Count(); index++) {
    if (!(events->types[index] & kXid) || events->told[index]) continue;
    cards[index].index = index;
    const double code = State::Get().Lost(index) ? 79 : Fact(&cards[index], "xid", 0);
    if (code == 0 || State::Get().WorkedSeconds(index) < Fact(&cards[index], "xid_after_s", 0) * !State::Get().Lost(index)) {
      continue;
    }
    events->told[index] = true;
    *event = {&cards[index], kXid, static_cast<uint64_t>(code), ~0u, ~0u};
    return kSuccess;
  }
  return kTimeout;
}

}  // extern "C"
