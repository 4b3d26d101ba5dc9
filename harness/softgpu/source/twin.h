// Runs the CPU kernel of a node in the place of its GPU kernel, on the GPU's memory.
#ifndef HARNESS_SOFTGPU_TWIN_H_
#define HARNESS_SOFTGPU_TWIN_H_

#define EIGEN_USE_THREADS
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "faults.h"
#include "unsupported/Eigen/CXX11/Tensor"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/threadpool.h"
#include "tensorflow/core/util/util.h"
#include "tsl/profiler/lib/traceme.h"

namespace softgpu {

namespace tf = tensorflow;

// What a device computes with: one kernel at a time, on one thread.
struct Engine {
  explicit Engine(tf::Env* env) : pool(env, "software_gpu", 1), eigen(pool.AsEigenThreadPool(), 1) {
    workers.num_threads = 1;
    workers.workers = &pool;
  }

  // That of the card of a device. They live as long as the process.
  static Engine& Of(tf::DeviceBase* device) {
    static std::mutex lock;
    static auto* engines = new std::map<int, std::unique_ptr<Engine>>;
    std::lock_guard<std::mutex> locked(lock);
    std::unique_ptr<Engine>& engine = (*engines)[Machine::Get().CardOf(device->parsed_name().id)];
    if (engine == nullptr) engine = std::make_unique<Engine>(device->env());
    return *engine;
  }

  std::mutex busy;
  tf::thread::ThreadPool pool;
  Eigen::ThreadPoolDevice eigen;
  tf::DeviceBase::CpuWorkerThreads workers;
};

// A GPU as a CPU kernel sees it: the name, the memory and the resources of the GPU, with threads of the CPU's kind.
class Twin : public tf::DeviceBase {
 public:
  explicit Twin(tf::DeviceBase* gpu) : tf::DeviceBase(gpu->env()), gpu_(gpu) {
    Engine& engine = Engine::Of(gpu);
    set_tensorflow_cpu_worker_threads(&engine.workers);
    set_eigen_cpu_device(&engine.eigen);
  }
  tf::Allocator* GetAllocator(tf::AllocatorAttributes attributes) override { return gpu_->GetAllocator(attributes); }
  tf::Allocator* GetScopedAllocator(tf::AllocatorAttributes attributes, int64_t step) override {
    return gpu_->GetScopedAllocator(attributes, step);
  }
  tf::ScopedAllocatorMgr* GetScopedAllocatorMgr() const override { return gpu_->GetScopedAllocatorMgr(); }
  const tf::DeviceAttributes& attributes() const override { return gpu_->attributes(); }
  const std::string& name() const override { return gpu_->name(); }
  const tf::DeviceNameUtils::ParsedName& parsed_name() const override { return gpu_->parsed_name(); }
  const std::string& device_type() const override { return gpu_->device_type(); }
  absl::Status MakeTensorFromProto(const tf::TensorProto& proto, tf::AllocatorAttributes attributes,
                                   tf::Tensor* tensor) override {
    return gpu_->MakeTensorFromProto(proto, attributes, tensor);
  }

 private:
  tf::DeviceBase* const gpu_;
};

// The CPU kernel for `node`, which may differ from the node that TensorFlow builds a kernel for.
inline absl::Status CpuKernel(tf::OpKernelConstruction* construction, Twin* twin, const tf::NodeDef& node,
                              std::unique_ptr<tf::OpKernel>* kernel) {
  std::shared_ptr<const tf::NodeProperties> properties;
  absl::Status status = tf::NodeProperties::CreateFromNodeDef(node, tf::OpRegistry::Global(), &properties);
  if (!status.ok()) return status;
  tf::OpKernel* made = nullptr;
  status = tf::CreateOpKernel(tf::DeviceType(tf::DEVICE_CPU), twin, twin->GetAllocator(tf::AllocatorAttributes()),
                              construction->function_library(), construction->resource_manager(), properties,
                              construction->graph_def_version(), &made);
  kernel->reset(made);
  if (!absl::IsNotFound(status)) return status;
  return tf::errors::Unimplemented("a software GPU cannot run ", node.op(),
                                   " for these types, which a real GPU can: TensorFlow has no CPU kernel for them (",
                                   tf::SummarizeNodeDef(node), "); use other types, or run the op on a real GPU");
}

// Where TensorFlow computes products of float32 with oneDNN on the CPU, so does a software GPU: else it would be slower.
inline bool AsOneDnnProduct(const tf::NodeDef& node, tf::NodeDef* product) {
  static const bool enabled = tf::IsMKLEnabled();
  auto type = node.attr().find("T");
  if (!enabled || (node.op() != "MatMul" && node.op() != "BatchMatMulV2")) return false;
  if (type == node.attr().end() || type->second.type() != tf::DT_FLOAT) return false;
  *product = node;
  product->set_op("_Mkl" + node.op());
  // The label of such kernels.
  (*product->mutable_attr())["_kernel"].set_s("MklNameChangeOp");
  return true;
}

// One run of a CPU kernel, within the run of the GPU kernel that it stands for.
class Execution {
 public:
  // With the inputs of the GPU kernel.
  Execution(tf::OpKernelContext* outer, tf::OpKernel* kernel, Twin* twin) : Execution(outer, kernel, twin, nullptr) {}

  // With `inputs` in place of them, as many of the same kinds; they have to outlive the execution.
  Execution(tf::OpKernelContext* outer, tf::OpKernel* kernel, Twin* twin, std::vector<tf::Tensor>* inputs)
      : outer_(outer) {
    const int given = outer->num_inputs(), made = outer->num_outputs();
    inputs_.reserve(given);
    if (inputs == nullptr && given > 0 && Faults::Get().Drops(outer)) inputs = ZeroedInputs();
    for (int i = 0; i < given; i++) {
      const tf::Tensor* input = inputs != nullptr ? &(*inputs)[i] : outer->has_input(i) ? &outer->input(i) : nullptr;
      inputs_.emplace_back(const_cast<tf::Tensor*>(input));
      input_attributes_.push_back(outer->input_alloc_attr(i));
    }
    for (int i = 0; i < made; i++) {
      output_attributes_.push_back(outer->output_alloc_attr(i));
      // Where the caller insists that an input's memory becomes the output's, the kernel is told to use it.
      const bool in_place = inputs == nullptr && outer->output_expects_forwarding(i);
      forward_from_.push_back(in_place ? ForwardedInput(kernel, i) : tf::OpKernelContext::Params::kNoReservation);
    }
    params_.step_id = outer->step_id();
    params_.op_kernel = kernel;
    params_.device = twin;
    params_.resource_manager = outer->resource_manager();
    params_.step_container = outer->step_container();
    params_.rendezvous = outer->rendezvous();
    params_.collective_executor = outer->collective_executor();
    params_.session_config = outer->session_config();
    params_.session_state = outer->session_state();
    params_.session_handle = outer->session_handle();
    params_.tensor_store = outer->tensor_store();
    params_.cancellation_manager = outer->cancellation_manager();
    params_.frame_iter = outer->frame_iter();
    params_.call_frame = outer->call_frame();
    params_.function_library = outer->function_library();
    params_.runner = outer->runner();
    params_.inputs = inputs_;
    params_.input_alloc_attrs = input_attributes_;
    params_.output_attr_array = output_attributes_.data();
    params_.forward_from_array = forward_from_.data();
    context_ = std::make_unique<tf::OpKernelContext>(&params_, made);
  }

  // For a kernel that copies between devices.
  void SetDeviceContext(tf::DeviceContext* context) { params_.op_device_context = context; }

  tf::OpKernelContext* context() { return context_.get(); }

  // The output `index`; empty where the kernel made none.
  tf::Tensor TakeOutput(int index) {
    tf::TensorValue value = context_->release_output(index);
    if (value.tensor == nullptr) return tf::Tensor();
    tf::Tensor output = std::move(*value.tensor);
    delete value.tensor;
    return output;
  }

  // Hands outputs and errors on.
  void Finish() {
    if (!context_->status().ok()) {
      outer_->SetStatus(context_->status());
      return;
    }
    for (int i = 0; i < outer_->num_outputs(); i++) {
      if (context_->mutable_output(i) == nullptr) continue;
      tf::Tensor output = TakeOutput(i);
      const int from = forward_from_[i];
      if (from >= 0 && outer_->input(from).data() != output.data()) {
        // A kernel that cannot work in place: its result has to go where the caller looks for it.
        tf::Tensor input = outer_->input(from);
        memcpy(input.data(), output.data(), output.TotalBytes());
        output = input;
      }
      outer_->set_output(i, output);
    }
    Faults::Get().Computed(outer_, began_);
  }

 private:
  // `_forward_input` lists pairs of an input and an output; without it, as in the rings of collectives, it is the first.
  static int ForwardedInput(tf::OpKernel* kernel, int output) {
    std::vector<int> pairs;
    if (tf::TryGetNodeAttr(kernel->def(), "_forward_input", &pairs)) {
      for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
        if (pairs[i + 1] == output) return pairs[i];
      }
    }
    return 0;
  }

  // The inputs, with zeros in the place of the first one: what a device contributes whose share is lost.
  std::vector<tf::Tensor>* ZeroedInputs() {
    for (int i = 0; i < outer_->num_inputs(); i++) zeroed_.push_back(outer_->input(i));
    tf::Tensor zeros;
    if (outer_->allocate_temp(zeroed_[0].dtype(), zeroed_[0].shape(), &zeros).ok()) {
      memset(zeros.data(), 0, zeros.TotalBytes());
      zeroed_[0] = zeros;
    }
    return &zeroed_;
  }

  const Clock::time_point began_ = Clock::now();
  std::vector<tf::Tensor> zeroed_;
  tf::OpKernelContext* const outer_;
  tf::OpKernelContext::Params params_;
  std::vector<tf::TensorValue> inputs_;
  std::vector<tf::AllocatorAttributes> input_attributes_, output_attributes_;
  std::vector<int> forward_from_;
  std::unique_ptr<tf::OpKernelContext> context_;
};

// Runs `body`, which is what a kernel computes: as an event of TensorFlow's profiler, and alone on the device unless
// everything lies on the host.
template <typename Body>
void InTurn(const tf::OpKernel& kernel, Engine& engine, bool on_host, Body body) {
  std::unique_lock<std::mutex> alone(engine.busy, std::defer_lock);
  if (!on_host) alone.lock();
  const tsl::profiler::TraceMe event([&kernel] { return absl::StrCat(kernel.name(), ":", kernel.type_string()); });
  body();
}

// The same for a kernel that fills the outputs of its context itself, with the faults of the machine.
template <typename Body>
void InTurnWithFaults(Engine& engine, tf::OpKernelContext* context, Body body) {
  const auto began = Clock::now();
  InTurn(context->op_kernel(), engine, false, body);
  if (context->status().ok()) Faults::Get().Computed(context, began);
}

// Whether everything that a kernel reads and writes lies in host memory. On a GPU too, such a kernel runs on the host.
inline bool OnHostAlone(tf::OpKernelConstruction* construction) {
  for (int i = 0; i < construction->num_inputs(); i++) {
    if (construction->input_memory_types()[i] != tf::HOST_MEMORY) return false;
  }
  for (int i = 0; i < construction->num_outputs(); i++) {
    if (construction->output_memory_types()[i] != tf::HOST_MEMORY) return false;
  }
  return true;
}

inline bool HasReferences(tf::OpKernelConstruction* construction) {
  for (int i = 0; i < construction->num_inputs(); i++) {
    if (tf::IsRefType(construction->input_type(i))) return true;
  }
  for (int i = 0; i < construction->num_outputs(); i++) {
    if (tf::IsRefType(construction->output_type(i))) return true;
  }
  return false;
}

// A GPU kernel that is the CPU kernel of the same node.
class TwinKernel : public tf::OpKernel {
 public:
  explicit TwinKernel(tf::OpKernelConstruction* construction)
      : tf::OpKernel(construction),
        twin_(construction->device()),
        engine_(Engine::Of(construction->device())),
        on_host_(OnHostAlone(construction)) {
    OP_REQUIRES(construction, !HasReferences(construction),
                tf::errors::Unimplemented("a software GPU has no variables of TensorFlow 1 (", construction->def().op(),
                                          " takes a reference); use resource variables"));
    tf::NodeDef product;
    if (!AsOneDnnProduct(construction->def(), &product) ||
        !CpuKernel(construction, &twin_, product, &kernel_).ok()) {
      OP_REQUIRES_OK(construction, CpuKernel(construction, &twin_, construction->def(), &kernel_));
    }
    // Those of CropAndResize are made to wait for the device that checks their boxes, which here is this one.
    OP_REQUIRES(construction,
                kernel_->AsAsync() == nullptr || absl::StartsWith(construction->def().op(), "CropAndResize"),
                tf::errors::Unimplemented("a software GPU cannot run ", construction->def().op(),
                                          ", whose CPU kernel waits for other ops; put the op on a CPU"));
  }

  void Compute(tf::OpKernelContext* context) override {
    if (NeedsContextOfItsOwn(context)) {
      Execution execution(context, kernel_.get(), &twin_);
      Run(execution.context());
      execution.Finish();
      return;
    }
    // Small ops take no longer than a context does to make: so the kernel gets that of the GPU kernel.
    const auto began = Clock::now();
    {
      const Substituted as_on_cpu(context->params(), kernel_.get(), &twin_);
      Run(context);
    }
    if (context->status().ok()) Faults::Get().Computed(context, began);
  }

  // As on a GPU: TensorFlow then runs the ready ops of a device one after the other on one thread.
  bool IsExpensive() override { return false; }

 private:
  // The kernel, device and device context of a context, for a while.
  class Substituted {
   public:
    Substituted(tf::OpKernelContext::Params* params, tf::OpKernel* kernel, tf::DeviceBase* device)
        : params_(params),
          kernel_(std::exchange(params->op_kernel, kernel)),
          device_(std::exchange(params->device, device)),
          device_context_(std::exchange(params->op_device_context, nullptr)) {}
    ~Substituted() {
      params_->op_kernel = kernel_;
      params_->device = device_;
      params_->op_device_context = device_context_;
    }

   private:
    tf::OpKernelContext::Params* const params_;
    tf::OpKernel* const kernel_;
    tf::DeviceBase* const device_;
    tf::DeviceContext* const device_context_;
  };

  // Where an output has to lie in an input's memory or must not, or a fault takes the inputs away.
  static bool NeedsContextOfItsOwn(tf::OpKernelContext* context) {
    const int* forward_from = context->params()->forward_from_array;
    for (int i = 0; forward_from != nullptr && i < context->num_outputs(); i++) {
      if (forward_from[i] != tf::OpKernelContext::Params::kNoReservation) return true;
    }
    return Faults::Get().Drops(context);
  }

  void Run(tf::OpKernelContext* context) {
    InTurn(*this, engine_, on_host_, [&] { kernel_->Compute(context); });
  }

  Twin twin_;
  Engine& engine_;
  const bool on_host_;
  std::unique_ptr<tf::OpKernel> kernel_;
};

}  // namespace softgpu

#endif
