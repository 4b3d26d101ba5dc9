// GPUs add up numbers of 16 bits in float32. TensorFlow's CPU kernels add bfloat16 in bfloat16 unless oneDNN does it, where
// a sum of ones ends at 256. So such kernels get float32 here, and their results are rounded once.
#ifndef HARNESS_SOFTGPU_WIDE_H_
#define HARNESS_SOFTGPU_WIDE_H_

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "twin.h"

namespace softgpu {

inline bool Has16Bits(tf::DataType type) { return type == tf::DT_HALF || type == tf::DT_BFLOAT16; }

inline bool Computes16Bits(const tf::NodeDef& node) {
  const auto type = node.attr().find("T");
  return type != node.attr().end() && Has16Bits(type->second.type());
}

template <typename From, typename Into>
void CopyAs(const tf::Tensor& from, tf::Tensor* into) {
  const auto* values = static_cast<const From*>(from.data());
  std::transform(values, values + from.NumElements(), static_cast<Into*>(into->data()),
                 [](From value) { return static_cast<Into>(value); });
}

// Converts a tensor from 16 bits to float32 or back; others stay as they are.
inline absl::Status Convert(tf::OpKernelContext* context, tf::DataType type, tf::Tensor* tensor) {
  const tf::Tensor from = *tensor;
  if (from.dtype() == type || (!Has16Bits(type) && !Has16Bits(from.dtype()))) return absl::OkStatus();
  absl::Status status = context->allocate_temp(type, from.shape(), tensor);
  if (!status.ok()) return status;
  if (from.dtype() == tf::DT_HALF) CopyAs<Eigen::half, float>(from, tensor);
  if (from.dtype() == tf::DT_BFLOAT16) CopyAs<Eigen::bfloat16, float>(from, tensor);
  if (type == tf::DT_HALF) CopyAs<float, Eigen::half>(from, tensor);
  if (type == tf::DT_BFLOAT16) CopyAs<float, Eigen::bfloat16>(from, tensor);
  return status;
}

// Puts float32 into the place of 16 bits. Returns the type that was there, if any.
inline tf::DataType Widen(tf::NodeDef* node) {
  if (!Computes16Bits(*node)) return tf::DT_INVALID;
  const tf::DataType narrow = node->attr().at("T").type();
  for (auto& [name, value] : *node->mutable_attr()) {
    if (value.type() == narrow) value.set_type(tf::DT_FLOAT);  // MaxPool3DGrad has a TInput too
  }
  return narrow;
}

// The CPU kernel of `node`, for float32 in the place of 16 bits.
class WideKernel {
 public:
  absl::Status Make(tf::OpKernelConstruction* construction, Twin* twin, tf::NodeDef node) {
    narrow_ = Widen(&node);
    return CpuKernel(construction, twin, node, &kernel_);
  }

  // Its one output for these inputs.
  absl::Status Run(tf::OpKernelContext* context, Twin* twin, std::vector<tf::Tensor>* inputs, tf::Tensor* output) {
    for (size_t i = 0; narrow_ != tf::DT_INVALID && i < inputs->size(); i++) {
      if ((*inputs)[i].dtype() != narrow_) continue;
      absl::Status status = Convert(context, tf::DT_FLOAT, &(*inputs)[i]);
      if (!status.ok()) return status;
    }
    Execution execution(context, kernel_.get(), twin, inputs);
    kernel_->Compute(execution.context());
    if (!execution.context()->status().ok()) return execution.context()->status();
    *output = execution.TakeOutput(0);
    return narrow_ == tf::DT_INVALID ? absl::OkStatus() : Convert(context, narrow_, output);
  }

 private:
  tf::DataType narrow_ = tf::DT_INVALID;
  std::unique_ptr<tf::OpKernel> kernel_;
};

// A kernel with one output that is such a kernel.
class WideTwin : public tf::OpKernel {
 public:
  explicit WideTwin(tf::OpKernelConstruction* construction)
      : tf::OpKernel(construction), twin_(construction->device()), engine_(Engine::Of(construction->device())) {
    OP_REQUIRES_OK(construction, kernel_.Make(construction, &twin_, construction->def()));
  }

  void Compute(tf::OpKernelContext* context) override {
    InTurnWithFaults(engine_, context, [&] {
      std::vector<tf::Tensor> inputs;
      for (int i = 0; i < context->num_inputs(); i++) inputs.push_back(context->input(i));
      tf::Tensor output;
      OP_REQUIRES_OK(context, kernel_.Run(context, &twin_, &inputs, &output));
      context->set_output(0, output);
    });
  }

  bool IsExpensive() override { return false; }

 private:
  Twin twin_;
  Engine& engine_;
  WideKernel kernel_;
};

// Beside those of layout.h: two that add up, and some whose CPU kernels are not for 16 bits.
inline bool NeedsFloat(const std::string& op) {
  static const auto* ops = new std::set<std::string>{
      "AdjustContrastv2", "AdjustHue", "AdjustSaturation", "BiasAddGrad", "Einsum", "Rint",
  };
  return ops->count(op) > 0;
}

inline tf::OpKernel* MakeWide(tf::OpKernelConstruction* construction) {
  if (Computes16Bits(construction->def())) return new WideTwin(construction);
  return new TwinKernel(construction);
}

}  // namespace softgpu

#endif
