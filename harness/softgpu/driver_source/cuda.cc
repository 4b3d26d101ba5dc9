// A stand-in for libcuda.so.1 with what identifies GPUs: their number, UUIDs and bus ids in CUDA's order, and the error
// codes of cuInit. It computes nothing; TensorFlow never sees it.
#include "state.h"

namespace {

using driver::State;

int Count() { return static_cast<int>(State::Get().Number("cuda_devices", 0)); }

bool Fact(int device, const char* name, std::string* value) {
  return State::Get().Find("cuda." + std::to_string(device) + "." + name, value);
}

// The bytes of `GPU-c0ffee00-…` or `MIG-…`.
int Uuid(int device, const char* name, unsigned char* bytes) {
  std::string text;
  if (device < 0 || device >= Count() || !Fact(device, name, &text)) return 101;  // INVALID_DEVICE
  int digits = 0;
  memset(bytes, 0, 16);
  for (char each : text.substr(4)) {
    if (!isxdigit(each) || digits == 32) continue;
    const int value = isdigit(each) ? each - '0' : tolower(each) - 'a' + 10;
    bytes[digits / 2] |= value << (digits % 2 ? 0 : 4);
    digits++;
  }
  return digits == 32 ? 0 : 101;
}

}  // namespace

extern "C" {

// Not part of CUDA: the description to answer from.
void harness_described_machine(const char* path) { State::Get().Open(path); }

int cuInit(unsigned) {
  if (!State::Get().Known()) return 100;  // NO_DEVICE
  const int error = static_cast<int>(State::Get().Number("cuinit", 0));
  return error != 0 ? error : Count() == 0 ? 100 : 0;
}
int cuDriverGetVersion(int* version) {
  *version = static_cast<int>(State::Get().Number("driver_cuda", 0));
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = Count();
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  if (ordinal < 0 || ordinal >= Count()) return 101;
  *device = ordinal;
  return 0;
}
// For a slice of a card under MIG, the first gives the UUID of the card, the second that of the slice.
int cuDeviceGetUuid(unsigned char* uuid, int device) { return Uuid(device, "uuid", uuid); }
int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  std::string slice;
  return Uuid(device, Fact(device, "mig_uuid", &slice) ? "mig_uuid" : "uuid", uuid);
}
int cuDeviceGetPCIBusId(char* text, int length, int device) {
  std::string pci;
  if (!Fact(device, "pci", &pci) || static_cast<int>(pci.size()) >= length) return 101;
  strcpy(text, pci.c_str());
  return 0;
}
int cuDeviceGetName(char* text, int length, int device) {
  std::string name;
  if (!Fact(device, "name", &name)) return 101;
  snprintf(text, length, "%s", name.c_str());
  return 0;
}
int cuGetErrorName(int error, const char** name) {
  switch (error) {
    case 0: *name = "CUDA_SUCCESS"; return 0;
    case 100: *name = "CUDA_ERROR_NO_DEVICE"; return 0;
    case 101: *name = "CUDA_ERROR_INVALID_DEVICE"; return 0;
    case 3: *name = "CUDA_ERROR_NOT_INITIALIZED"; return 0;
    case 802: *name = "CUDA_ERROR_SYSTEM_NOT_READY"; return 0;
    case 803: *name = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"; return 0;
    case 999: *name = "CUDA_ERROR_UNKNOWN"; return 0;
    default: return 1;
  }
}

}  // extern "C"
