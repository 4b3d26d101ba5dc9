// A pluggable device for TensorFlow: GPUs made of software. harness/softgpu compiles this file at first use.
#include "differences.h"
#include "faults.h"
#include "platform.h"
#include "registry.h"

// How many devices this process has: the card that each is on, and the bytes that it states. Has to be called before
// TensorFlow loads the library as a pluggable device; once more where programs split or hide cards.
extern "C" void harness_softgpu_configure(int count, const int* cards, const int64_t* bytes) {
  softgpu::Machine::Get().Configure(count, cards, bytes);
}

// The faults of the machine, as lines for faults.h: null, or what is wrong with them. Can be called at any time.
extern "C" const char* harness_softgpu_faults(const char* lines) {
  static std::string problem;
  problem = softgpu::Faults::Get().Set(lines, softgpu::WhyNotSpoilt);
  return problem.empty() ? nullptr : problem.c_str();
}

// Where to count the work of device `device`, the driver's card `by_driver`, for the stand-in of NVML.
extern "C" void harness_softgpu_share_work(const char* path) { softgpu::Faults::Get().ShareWork(path); }
extern "C" void harness_softgpu_number_card(int device, int by_driver) {
  softgpu::Faults::Get().NumberCard(device, by_driver);
}

// Where kernels differ from those of a GPU: see differences.h.
extern "C" const char* harness_softgpu_differences() {
  static const std::string lines = softgpu::Differences();
  return lines.c_str();
}

extern "C" void SE_InitPlugin(SE_PlatformRegistrationParams* params, TF_Status* status) {
  softgpu::DescribePlatform(params, status);
}

extern "C" void TF_InitKernel() { softgpu::RegisterKernels(); }
