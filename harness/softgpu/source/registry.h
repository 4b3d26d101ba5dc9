// Which kernels software GPUs have. TensorFlow's wheel carries the kernel registry of its CUDA build, so that what a GPU
// can run, for which types, and which arguments lie in host memory, is read there. Each definition is registered again
// with a higher priority and a kernel that needs no GPU.
#ifndef HARNESS_SOFTGPU_REGISTRY_H_
#define HARNESS_SOFTGPU_REGISTRY_H_

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "collectives.h"
#include "layout.h"
#include "recurrent.h"
#include "rephrased.h"
#include "twin.h"
#include "wide.h"
#include "tensorflow/core/framework/kernel_def.pb.h"

namespace softgpu {

// Above the priorities that TensorFlow itself uses (0 to 2).
constexpr int kPriority = 7;

// A GPU kernel that cannot be emulated.
class Missing : public tf::OpKernel {
 public:
  explicit Missing(tf::OpKernelConstruction* construction) : tf::OpKernel(construction) {
    construction->CtxFailure(tf::errors::Unimplemented(
        "a software GPU cannot run ", construction->def().op(),
        ", which a real GPU can: TensorFlow has no CPU kernel for the op; run it on a real GPU"));
  }
  void Compute(tf::OpKernelContext*) override {}
};

// Everything on a software GPU is done when the call returns.
class NothingToWaitFor : public tf::OpKernel {
 public:
  using tf::OpKernel::OpKernel;
  void Compute(tf::OpKernelContext*) override {}
};

template <typename Kernel>
tf::OpKernel* Make(tf::OpKernelConstruction* construction) {
  return new Kernel(construction);
}

using Maker = tf::OpKernel* (*)(tf::OpKernelConstruction*);

// Kernels of the GPU that start nothing on it: they hand tensors on, call functions, steer the executor, or talk to the
// host. TensorFlow's executor knows many of them by name.
inline bool RunsAsItIs(const std::string& op) {
  static const auto* kept = new std::set<std::string>{
      "BatchFunction",       "Bitcast",          "Const",          "Enter",
      "Exit",                "ExpandDims",       "Identity",       "IsVariableInitialized",
      "Merge",               "NcclBroadcast",    "NcclReduce",     "NextIteration",
      "OptionalFromValue",   "OptionalGetValue", "OptionalHasValue", "OptionalNone",
      "PlaceholderWithDefault", "PreventGradient", "Rank",         "RefEnter",
      "RefExit",             "RefIdentity",      "RefMerge",       "RefNextIteration",
      "RefSwitch",           "Reshape",          "Shape",          "ShapeN",
      "Size",                "SleepOp",          "Squeeze",        "StopGradient",
      "Switch",              "TemporaryVariable", "DestroyTemporaryVariable", "Variable",
      "VariableV2",          "_EagerConst",      "_ScopedAllocator", "_SwitchN",
  };
  return kept->count(op) > 0 || absl::StrContains(op, "Dataset") || absl::StrContains(op, "Iterator") ||
         absl::StartsWith(op, "Xla") || absl::StartsWith(op, "_Xla");
}

inline bool IsNccl(const std::string& op) {
  return op == "NcclAllReduce" || absl::StartsWith(op, "_NcclReduce") || absl::StartsWith(op, "_NcclBroadcast");
}

// What runs in the place of a GPU kernel of `op`; null where TensorFlow's own does.
inline Maker MakerFor(const std::string& op, bool has_cpu_kernel) {
  if (RunsAsItIs(op)) return nullptr;
  if (op == "SyncDevice") return Make<NothingToWaitFor>;
  if (IsNccl(op)) return Make<NcclKernel>;
  if (op == "CollectiveReduceScatterV2") return Make<ReduceScatter>;
  if (absl::StartsWith(op, "Collective")) return Make<CollectiveTwin>;
  if (op == "CudnnRNNV3") return Make<Recurrent>;
  if (op == "CudnnRNNBackpropV3") return Make<RecurrentGradient>;
  if (op == "_FusedBatchNormEx") return Make<FusedNorm>;
  if (op == "CTCLossV2") return Make<CtcLoss>;
  if (!has_cpu_kernel) return Make<Missing>;
  if (HasImageLayout(op)) return Make<LayoutTwin>;
  if (NeedsFloat(op)) return MakeWide;
  return Make<TwinKernel>;
}

// Kernels that TensorFlow registers for devices of any type, and that would reach for NCCL or copy with CUDA on a GPU.
inline bool IsForAnyDevice(const std::string& op) {
  return absl::StartsWith(op, "Collective") && absl::EndsWith(op, "V2") && op != "CollectiveAssignGroupV2";
}

// The kernels that a GPU has, and the ops that have one on the CPU, before software GPUs add theirs.
struct Kernels {
  std::vector<tf::KernelDef> on_gpu;
  std::set<std::string> on_cpu;

  static const Kernels& Get() {
    static const auto* kernels = [] {
      auto* made = new Kernels;
      const tf::KernelList all = tf::GetAllRegisteredKernels();
      for (const tf::KernelDef& kernel : all.kernel()) {
        if (kernel.device_type() == tf::DEVICE_CPU) made->on_cpu.insert(kernel.op());
        const bool for_any = kernel.device_type() == tf::DEVICE_DEFAULT && IsForAnyDevice(kernel.op());
        if (kernel.device_type() == tf::DEVICE_GPU || for_any) made->on_gpu.push_back(kernel);
      }
      return made;
    }();
    return *kernels;
  }
};

// Whether an output of a kernel lies in the GPU's memory, and can have numbers of a type ("*": of any).
inline bool Makes(const tf::KernelDef& kernel, const tf::OpDef::ArgDef& output, const std::string& type) {
  const auto& on_host = kernel.host_memory_arg();
  if (std::find(on_host.begin(), on_host.end(), output.name()) != on_host.end()) return false;
  const auto fits = [&type](int each) {
    const auto found = static_cast<tf::DataType>(each);
    return tf::DataTypeSize(found) > 0 && (type == "*" || type == tf::DataTypeString(found));
  };
  if (output.type() != tf::DT_INVALID) return fits(output.type());
  for (const auto& constraint : kernel.constraint()) {
    if (constraint.name() != output.type_attr()) continue;
    const auto& types = constraint.allowed_values().list().type();
    return std::any_of(types.begin(), types.end(), fits);
  }
  return true;
}

// Why no fault can spoil what an op computes in numbers of a type ("" or "*": of any); empty where one can.
inline std::string WhyNotSpoilt(const std::string& op, const std::string& type) {
  const tf::OpRegistrationData* known = tf::OpRegistry::Global()->LookUp(op);
  if (known == nullptr) return "TensorFlow has no op " + op;
  bool has_kernel = false;
  for (const tf::KernelDef& kernel : Kernels::Get().on_gpu) {
    if (kernel.op() != op) continue;
    has_kernel = true;
    const auto& outputs = known->op_def.output_arg();
    const auto spoils = [&](const auto& output) { return Makes(kernel, output, type.empty() ? "*" : type); };
    const Maker maker = MakerFor(op, Kernels::Get().on_cpu.count(op) > 0);
    if (maker == nullptr) return op + " computes nothing in a GPU's memory";
    if (maker == static_cast<Maker>(Make<Missing>)) return "a software GPU cannot run " + op;
    if (std::any_of(outputs.begin(), outputs.end(), spoils)) return "";
  }
  if (!has_kernel) return op + " has no GPU kernel";
  return op + " has no output in the memory of a GPU" + (type.empty() || type == "*" ? "" : " with the type " + type);
}

// Registers all of them.
inline void RegisterKernels() {
  static const bool registered = [] {
    for (const tf::KernelDef& kernel : Kernels::Get().on_gpu) {
      const Maker maker = MakerFor(kernel.op(), Kernels::Get().on_cpu.count(kernel.op()) > 0);
      if (maker == nullptr) continue;
      auto* definition = new tf::KernelDef(kernel);
      definition->set_device_type(tf::DEVICE_GPU);
      definition->set_priority(kPriority);
      tf::kernel_factory::OpKernelRegistrar(definition, "SoftwareGpuKernel", maker);
    }
    return true;
  }();
  (void)registered;
}

}  // namespace softgpu

#endif
