// A pluggable device for TensorFlow: GPUs made of software. harness/softgpu compiles this file at first use.
#include "platform.h"
#include "registry.h"

// How many software GPUs this process has, and how many bytes of memory each. Has to be called before TensorFlow loads
// the library as a pluggable device.
extern "C" void harness_softgpu_configure(int count, int64_t bytes_each) {
  softgpu::Machine::Get().Configure(count, bytes_each);
}

// The ops that have a kernel on a GPU and cannot run on a software GPU, each on a line.
extern "C" const char* harness_softgpu_missing_ops() { return softgpu::RegisterKernels().c_str(); }

extern "C" void SE_InitPlugin(SE_PlatformRegistrationParams* params, TF_Status* status) {
  softgpu::DescribePlatform(params, status);
}

extern "C" void TF_InitKernel() { softgpu::RegisterKernels(); }
