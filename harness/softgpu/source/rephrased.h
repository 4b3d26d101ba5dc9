// GPU kernels whose op has no CPU kernel that computes the same, but another op has one: batch normalization that
// TensorFlow's graph optimizer has fused with an addition and an activation, and cuDNN's CTC loss.
#ifndef HARNESS_SOFTGPU_REPHRASED_H_
#define HARNESS_SOFTGPU_REPHRASED_H_

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "wide.h"

namespace softgpu {

// A kernel that runs the CPU kernel of another op.
class Rephrased : public tf::OpKernel {
 public:
  explicit Rephrased(tf::OpKernelConstruction* construction)
      : tf::OpKernel(construction), twin_(construction->device()), engine_(Engine::Of(construction->device())) {}

  void Compute(tf::OpKernelContext* context) override {
    InTurnWithFaults(engine_, context, [&] { OP_REQUIRES_OK(context, ComputeAlone(context)); });
  }

  bool IsExpensive() override { return false; }

 protected:
  virtual absl::Status ComputeAlone(tf::OpKernelContext* context) = 0;

  void Make(tf::OpKernelConstruction* construction, const tf::NodeDef& node) {
    OP_REQUIRES_OK(construction, CpuKernel(construction, &twin_, node, &kernel_));
  }

  // All outputs for these inputs.
  absl::Status Run(tf::OpKernelContext* context, std::vector<tf::Tensor>* inputs, std::vector<tf::Tensor>* outputs) {
    Execution execution(context, kernel_.get(), &twin_, inputs);
    kernel_->Compute(execution.context());
    if (!execution.context()->status().ok()) return execution.context()->status();
    for (int i = 0; i < context->num_outputs(); i++) outputs->push_back(execution.TakeOutput(i));
    return absl::OkStatus();
  }

  static std::vector<tf::Tensor> Inputs(tf::OpKernelContext* context) {
    std::vector<tf::Tensor> inputs;
    for (int i = 0; i < context->num_inputs(); i++) inputs.push_back(context->input(i));
    return inputs;
  }

 private:
  Twin twin_;
  Engine& engine_;
  std::unique_ptr<tf::OpKernel> kernel_;
};

// _FusedBatchNormEx: the activation of the sum of a normalized image and another one. Numbers of 16 bits are rounded once.
class FusedNorm : public Rephrased {
 public:
  explicit FusedNorm(tf::OpKernelConstruction* construction) : Rephrased(construction) {
    std::string activation;
    OP_REQUIRES_OK(construction, construction->GetAttr("T", &type_));
    OP_REQUIRES_OK(construction, construction->GetAttr("num_side_inputs", &side_inputs_));
    OP_REQUIRES_OK(construction, construction->GetAttr("activation_mode", &activation));
    OP_REQUIRES(construction, activation == "Identity" || activation == "Relu",
                tf::errors::Unimplemented("a software GPU cannot run ", construction->def().op(), " with the activation ",
                                          activation, "; use Identity or Relu, or run the op on a real GPU"));
    activates_ = activation == "Relu";
    tf::NodeDef node = construction->def();
    node.set_op("FusedBatchNormV3");
    node.mutable_input()->DeleteSubrange(5, std::max(0, node.input_size() - 5));
    for (const char* name : {"num_side_inputs", "activation_mode"}) node.mutable_attr()->erase(name);
    (*node.mutable_attr())["T"].set_type(tf::DT_FLOAT);
    Make(construction, node);
  }

 protected:
  absl::Status ComputeAlone(tf::OpKernelContext* context) override {
    std::vector<tf::Tensor> inputs = Inputs(context), outputs;
    absl::Status status = Convert(context, tf::DT_FLOAT, &inputs[0]);
    if (status.ok()) status = Run(context, &inputs, &outputs);
    for (int i = 0; status.ok() && i < side_inputs_; i++) {
      tf::Tensor side = context->input(5 + i);
      if (side.shape() != outputs[0].shape()) {
        return tf::errors::InvalidArgument("side_input has the shape ", side.shape().DebugString(), ", but x has ",
                                           outputs[0].shape().DebugString());
      }
      status = Convert(context, tf::DT_FLOAT, &side);
      if (status.ok()) outputs[0].flat<float>() += side.flat<float>();
    }
    if (status.ok() && activates_) outputs[0].flat<float>() = outputs[0].flat<float>().cwiseMax(0.0f);
    if (status.ok()) status = Convert(context, type_, &outputs[0]);
    for (int i = 0; status.ok() && i < context->num_outputs(); i++) context->set_output(i, outputs[i]);
    return status;
  }

 private:
  tf::DataType type_ = tf::DT_FLOAT;
  int side_inputs_ = 0;
  bool activates_ = false;
};

// CTCLossV2, whose first class is the blank. That of CTCLoss is the last one.
class CtcLoss : public Rephrased {
 public:
  explicit CtcLoss(tf::OpKernelConstruction* construction) : Rephrased(construction) {
    tf::NodeDef node = construction->def();
    node.set_op("CTCLoss");
    (*node.mutable_attr())["T"].set_type(tf::DT_FLOAT);
    Make(construction, node);
  }

 protected:
  absl::Status ComputeAlone(tf::OpKernelContext* context) override {
    std::vector<tf::Tensor> inputs = Inputs(context), outputs;
    absl::Status status = Turn(context, 1, &inputs[0]);
    tf::AllocatorAttributes on_host;
    on_host.set_on_host(true);
    tf::Tensor& labels = inputs[2];
    if (status.ok()) status = context->allocate_temp(labels.dtype(), labels.shape(), &labels, on_host);
    if (!status.ok()) return status;
    labels.flat<int32_t>() = context->input(2).flat<int32_t>() - 1;
    status = Run(context, &inputs, &outputs);
    if (status.ok()) status = Turn(context, -1, &outputs[1]);
    for (int i = 0; status.ok() && i < context->num_outputs(); i++) context->set_output(i, outputs[i]);
    return status;
  }

 private:
  // Moves each class `by` places to the front; the first one comes to the end, or the last one to the front.
  static absl::Status Turn(tf::OpKernelContext* context, int by, tf::Tensor* tensor) {
    if (tensor->dims() == 0) return absl::OkStatus();  // the CPU kernel says what is wrong with it
    const tf::Tensor from = *tensor;
    absl::Status status = context->allocate_temp(from.dtype(), from.shape(), tensor);
    if (!status.ok() || from.NumElements() == 0) return status;
    const int64_t classes = from.dim_size(from.dims() - 1);
    const float* row = from.flat<float>().data();
    float* into = tensor->flat<float>().data();
    for (int64_t left = from.NumElements(); left > 0; left -= classes, row += classes, into += classes) {
      std::rotate_copy(row, row + (classes + by) % classes, row + classes, into);
    }
    return status;
  }
};

}  // namespace softgpu

#endif
