// Convolutions and pools. GPUs take images with their channels first and gradients of dilated and grouped convolutions;
// TensorFlow's CPU kernels do not. Their inputs are rearranged so that the CPU kernel computes the same.
#ifndef HARNESS_SOFTGPU_LAYOUT_H_
#define HARNESS_SOFTGPU_LAYOUT_H_

#include <map>
#include <string>
#include <vector>

#include "wide.h"

namespace softgpu {

enum class Part { kNotAConvolution, kForward, kInputGradient, kFilterGradient };

// What the arguments of an op are.
struct ImageOp {
  std::vector<int> images;   // inputs that are batches of images
  std::vector<int> vectors;  // inputs with a number for each dimension of such a batch: its shape, windows, strides
  bool makes_image = true;
  Part part = Part::kNotAConvolution;
  int filter = -1;  // the filter, or for its gradient, the input that has the filter's shape
};

inline const ImageOp* FindImageOp(const std::string& op) {
  static const auto* ops = [] {
    const ImageOp forward{{0}, {}, true, Part::kForward, 1};
    const ImageOp input_gradient{{2}, {0}, true, Part::kInputGradient, 1};
    const ImageOp filter_gradient{{0, 2}, {}, false, Part::kFilterGradient, 1};
    const ImageOp one{{0}, {}}, three{{0, 1, 2}, {}};
    return new std::map<std::string, ImageOp>{
        {"Conv", forward},
        {"Conv2D", forward},
        {"_FusedConv2D", forward},
        {"DepthwiseConv2dNative", forward},
        {"Conv3D", forward},
        {"Conv2DBackpropInput", input_gradient},
        {"DepthwiseConv2dNativeBackpropInput", input_gradient},
        {"Conv3DBackpropInputV2", input_gradient},
        {"Conv2DBackpropFilter", filter_gradient},
        {"DepthwiseConv2dNativeBackpropFilter", filter_gradient},
        {"Conv3DBackpropFilterV2", filter_gradient},
        {"AvgPool", one},
        {"AvgPool3D", one},
        {"MaxPool", one},
        {"MaxPool3D", one},
        {"DepthToSpace", one},
        {"SpaceToDepth", one},
        {"MaxPoolGrad", three},
        {"MaxPoolGradGrad", three},
        {"MaxPool3DGrad", three},
        {"MaxPool3DGradGrad", three},
        {"MaxPoolV2", ImageOp{{0}, {1, 2}}},
        {"MaxPoolGradV2", ImageOp{{0, 1, 2}, {3, 4}}},
        {"MaxPoolGradGradV2", ImageOp{{0, 1, 2}, {3, 4}}},
        {"AvgPoolGrad", ImageOp{{1}, {0}}},
        {"AvgPool3DGrad", ImageOp{{1}, {0}}},
    };
  }();
  const auto found = ops->find(op);
  return found == ops->end() ? nullptr : &found->second;
}

inline bool HasImageLayout(const std::string& op) { return FindImageOp(op) != nullptr; }

// ---- rearranging bytes

// Copies `batch` matrices of items, each transposed.
inline void TransposeItems(const char* from, char* into, int64_t batch, int64_t rows, int64_t columns, int64_t item) {
  for (int64_t b = 0; b < batch; b++, from += rows * columns * item, into += rows * columns * item) {
    for (int64_t row = 0; row < rows; row++) {
      for (int64_t column = 0; column < columns; column++) {
        memcpy(into + (column * rows + row) * item, from + (row * columns + column) * item, item);
      }
    }
  }
}

// Copies columns [begin, begin + width) of a matrix of `from_width` columns to column `at` of one of `into_width`.
inline void CopyColumns(const char* from, int64_t from_width, int64_t begin, char* into, int64_t into_width, int64_t at,
                        int64_t rows, int64_t width, int64_t item) {
  for (int64_t row = 0; row < rows; row++) {
    memcpy(into + (row * into_width + at) * item, from + (row * from_width + begin) * item, width * item);
  }
}

// ---- shapes

inline int64_t LastSize(const tf::TensorShape& shape) { return shape.dim_size(shape.dims() - 1); }

// NCHW from NHWC, and the other way round, for any number of dimensions.
template <typename List>
List ChannelsLast(const List& list) {
  List moved(list.begin(), list.end());
  moved.erase(moved.begin() + 1);
  moved.push_back(list[1]);
  return moved;
}

inline tf::TensorShape Shape(const std::vector<int64_t>& sizes) { return tf::TensorShape(absl::MakeConstSpan(sizes)); }

inline std::vector<int64_t> Sizes(const tf::TensorShape& shape) {
  const auto sizes = shape.dim_sizes();
  return std::vector<int64_t>(sizes.begin(), sizes.end());
}

class LayoutTwin : public tf::OpKernel {
 public:
  explicit LayoutTwin(tf::OpKernelConstruction* construction)
      : tf::OpKernel(construction),
        op_(*FindImageOp(construction->def().op())),
        twin_(construction->device()),
        engine_(Engine::Of(construction->device())) {
    tf::NodeDef node = construction->def();
    std::string format = "NHWC";
    OP_REQUIRES_OK(construction, construction->GetAttr("data_format", &format));
    static const auto* last = new std::map<std::string, std::string>{
        {"NCHW", "NHWC"}, {"NCDHW", "NDHWC"}, {"CHANNELS_FIRST", "CHANNELS_LAST"}};
    const auto moved = last->find(format);
    channels_first_ = moved != last->end();
    if (channels_first_) {
      (*node.mutable_attr())["data_format"].set_s(moved->second);
      for (const char* name : {"strides", "ksize", "dilations"}) MoveChannels(&node, name, 1);
      MoveChannels(&node, "explicit_paddings", 2);
    }
    if (op_.part != Part::kNotAConvolution) RemoveDilations(&node);
    OP_REQUIRES_OK(construction, kernel_.Make(construction, &twin_, node));
  }

  void Compute(tf::OpKernelContext* context) override {
    InTurnWithFaults(engine_, context, [&] { ComputeAlone(context); });
  }

  bool IsExpensive() override { return false; }

 private:
  void ComputeAlone(tf::OpKernelContext* context) {
    std::vector<tf::Tensor> inputs;
    for (int i = 0; i < context->num_inputs(); i++) inputs.push_back(context->input(i));
    if (channels_first_) {
      for (int i : op_.images) OP_REQUIRES_OK(context, ToChannelsLast(context, &inputs[i]));
      for (int i : op_.vectors) OP_REQUIRES_OK(context, MoveVector(context, &inputs[i]));
    }
    if (!dilations_.empty()) OP_REQUIRES_OK(context, Dilate(context, &inputs[op_.filter]));
    tf::Tensor output;
    OP_REQUIRES_OK(context, InGroups(context, inputs, &output));
    if (!dilations_.empty() && op_.part == Part::kFilterGradient) {
      OP_REQUIRES_OK(context, Undilate(context, &output));
    }
    if (channels_first_ && op_.makes_image) OP_REQUIRES_OK(context, ToChannelsFirst(context, &output));
    context->set_output(0, output);
  }

  // An attribute with `each` numbers for each dimension.
  static void MoveChannels(tf::NodeDef* node, const char* name, size_t each) {
    auto found = node->mutable_attr()->find(name);
    if (found == node->mutable_attr()->end()) return;
    auto* list = found->second.mutable_list()->mutable_i();
    if (list->empty()) return;
    const std::vector<int64_t> before(list->begin(), list->end());
    list->Clear();
    const size_t dimensions = before.size() / each;
    for (size_t i = 0; i < dimensions; i++) {
      const size_t from = i == 0 ? 0 : i + 1 == dimensions ? 1 : i + 1;
      for (size_t part = 0; part < each; part++) list->Add(before[from * each + part]);
    }
  }

  // A dilated filter is a larger one with zeros between. The CPU kernel of Conv2D alone knows dilations.
  void RemoveDilations(tf::NodeDef* node) {
    if (node->op() == "Conv2D" || node->op() == "_FusedConv2D") return;
    auto found = node->mutable_attr()->find("dilations");
    if (found == node->mutable_attr()->end()) return;
    auto* list = found->second.mutable_list()->mutable_i();
    const std::vector<int64_t> all(list->begin(), list->end());
    if (std::all_of(all.begin(), all.end(), [](int64_t dilation) { return dilation == 1; })) return;
    dilations_.assign(all.begin() + 1, all.end() - 1);
    for (auto& dilation : *list) dilation = 1;
  }

  static absl::Status ToChannelsLast(tf::OpKernelContext* context, tf::Tensor* image) {
    if (image->dims() < 3) return absl::OkStatus();  // the CPU kernel says what is wrong with it
    const tf::Tensor from = *image;
    const std::vector<int64_t> sizes = Sizes(from.shape());
    absl::Status status = context->allocate_temp(from.dtype(), Shape(ChannelsLast(sizes)), image);
    if (!status.ok() || from.NumElements() == 0) return status;
    const int64_t pixels = from.NumElements() / sizes[0] / sizes[1];
    TransposeItems(static_cast<const char*>(from.data()), static_cast<char*>(image->data()), sizes[0], sizes[1], pixels,
                   tf::DataTypeSize(from.dtype()));
    return status;
  }

  static absl::Status ToChannelsFirst(tf::OpKernelContext* context, tf::Tensor* image) {
    const tf::Tensor from = *image;
    std::vector<int64_t> sizes = Sizes(from.shape());
    const int64_t channels = sizes.back();
    sizes.pop_back();
    sizes.insert(sizes.begin() + 1, channels);
    absl::Status status = context->allocate_temp(from.dtype(), Shape(sizes), image);
    if (!status.ok() || from.NumElements() == 0) return status;
    const int64_t pixels = from.NumElements() / sizes[0] / channels;
    TransposeItems(static_cast<const char*>(from.data()), static_cast<char*>(image->data()), sizes[0], pixels, channels,
                   tf::DataTypeSize(from.dtype()));
    return status;
  }

  static absl::Status MoveVector(tf::OpKernelContext* context, tf::Tensor* vector) {
    if (vector->dims() != 1 || vector->NumElements() < 4) return absl::OkStatus();  // height and width alone
    const tf::Tensor from = *vector;
    absl::Status status = OnHost(context, from.dtype(), from.shape(), vector);
    if (!status.ok()) return status;
    const int64_t item = tf::DataTypeSize(from.dtype()), last = from.NumElements() - 1;
    const char* source = static_cast<const char*>(from.data());
    char* target = static_cast<char*>(vector->data());
    memcpy(target, source, item);
    memcpy(target + item, source + 2 * item, (last - 1) * item);
    memcpy(target + last * item, source + item, item);
    return status;
  }

  static absl::Status OnHost(tf::OpKernelContext* context, tf::DataType type, const tf::TensorShape& shape,
                             tf::Tensor* tensor) {
    tf::AllocatorAttributes attributes;
    attributes.set_on_host(true);
    return context->allocate_temp(type, shape, tensor, attributes);
  }

  static int64_t Element(const tf::Tensor& vector, int64_t index) {
    return vector.dtype() == tf::DT_INT64 ? static_cast<const int64_t*>(vector.data())[index]
                                          : static_cast<const int32_t*>(vector.data())[index];
  }

  static void SetElement(tf::Tensor* vector, int64_t index, int64_t value) {
    if (vector->dtype() == tf::DT_INT64) {
      static_cast<int64_t*>(vector->data())[index] = value;
    } else {
      static_cast<int32_t*>(vector->data())[index] = static_cast<int32_t>(value);
    }
  }

  static absl::Status CopyOfVector(tf::OpKernelContext* context, tf::Tensor* vector) {
    const tf::Tensor from = *vector;
    absl::Status status = OnHost(context, from.dtype(), from.shape(), vector);
    if (status.ok()) memcpy(vector->data(), from.data(), from.TotalBytes());
    return status;
  }

  // The filter with zeros between its rows and columns; for its gradient, the shape of that.
  absl::Status Dilate(tf::OpKernelContext* context, tf::Tensor* filter) {
    if (op_.part == Part::kFilterGradient) {
      absl::Status status = CopyOfVector(context, filter);
      for (size_t i = 0; status.ok() && i < dilations_.size(); i++) {
        SetElement(filter, i, (Element(*filter, i) - 1) * dilations_[i] + 1);
      }
      return status;
    }
    const tf::Tensor from = *filter;
    tf::TensorShape shape = from.shape();
    for (size_t i = 0; i < dilations_.size(); i++) shape.set_dim(i, (shape.dim_size(i) - 1) * dilations_[i] + 1);
    absl::Status status = context->allocate_temp(from.dtype(), shape, filter);
    if (!status.ok()) return status;
    memset(filter->data(), 0, filter->TotalBytes());
    CopyTaps(static_cast<const char*>(from.data()), from.shape(), static_cast<char*>(filter->data()), shape, true,
             tf::DataTypeSize(from.dtype()));
    return status;
  }

  absl::Status Undilate(tf::OpKernelContext* context, tf::Tensor* filter) {
    const tf::Tensor from = *filter;
    tf::TensorShape shape = from.shape();
    for (size_t i = 0; i < dilations_.size(); i++) shape.set_dim(i, (shape.dim_size(i) - 1) / dilations_[i] + 1);
    absl::Status status = context->allocate_temp(from.dtype(), shape, filter);
    if (!status.ok()) return status;
    CopyTaps(static_cast<char*>(filter->data()), shape, static_cast<char*>(from.data()), from.shape(), false,
             tf::DataTypeSize(from.dtype()));
    return status;
  }

  // Copies each tap of a filter to or from its place in the dilated one.
  template <typename Small>
  void CopyTaps(Small small, const tf::TensorShape& small_shape, char* large, const tf::TensorShape& large_shape,
                bool into_large, int64_t item) {
    const int spatial = static_cast<int>(dilations_.size());
    int64_t taps = 1, tap_bytes = item;
    for (int i = 0; i < spatial; i++) taps *= small_shape.dim_size(i);
    for (int i = spatial; i < small_shape.dims(); i++) tap_bytes *= small_shape.dim_size(i);
    for (int64_t tap = 0; tap < taps; tap++) {
      int64_t rest = tap, at = 0, stride = 1;
      for (int i = spatial - 1; i >= 0; i--) {
        at += rest % small_shape.dim_size(i) * dilations_[i] * stride;
        rest /= small_shape.dim_size(i);
        stride *= large_shape.dim_size(i);
      }
      if (into_large) {
        memcpy(large + at * tap_bytes, small + tap * tap_bytes, tap_bytes);
      } else {
        memcpy(const_cast<char*>(small) + tap * tap_bytes, large + at * tap_bytes, tap_bytes);
      }
    }
  }

  // How many groups of channels a gradient or a Conv3D has. The CPU kernel of Conv2D knows groups by itself.
  int64_t Groups(const std::vector<tf::Tensor>& inputs) {
    const bool depthwise = absl::StartsWith(std::string(type_string()), "Depthwise");
    if (depthwise) return 1;
    if (type_string() == "Conv3D" && inputs[0].dims() == 5 && inputs[1].dims() == 5) {
      const int64_t channels = LastSize(inputs[0].shape()), each = inputs[1].dim_size(3);
      return each > 0 && channels % each == 0 ? channels / each : 1;
    }
    if (op_.part == Part::kInputGradient && inputs[0].NumElements() >= 4 && inputs[1].dims() >= 4) {
      const int64_t channels = Element(inputs[0], inputs[0].NumElements() - 1);
      const int64_t each = inputs[1].dim_size(inputs[1].dims() - 2);
      return each > 0 && channels % each == 0 ? channels / each : 1;
    }
    if (op_.part == Part::kFilterGradient && inputs[1].NumElements() >= 4 && inputs[0].dims() >= 4) {
      const int64_t channels = LastSize(inputs[0].shape()), each = Element(inputs[1], inputs[1].NumElements() - 2);
      return each > 0 && channels % each == 0 ? channels / each : 1;
    }
    return 1;
  }

  // Runs the CPU kernel once for each group of channels, and joins what comes out along the last dimension.
  absl::Status InGroups(tf::OpKernelContext* context, std::vector<tf::Tensor>& inputs, tf::Tensor* output) {
    const int64_t groups = Groups(inputs);
    if (groups <= 1) return kernel_.Run(context, &twin_, &inputs, output);
    // The input that is the shape of the gradient, if any; the last dimension of each other one has the groups.
    const int shape_at = op_.part == Part::kForward ? -1 : op_.part == Part::kInputGradient ? 0 : 1;
    for (int64_t group = 0; group < groups; group++) {
      std::vector<tf::Tensor> part = inputs;
      absl::Status status;
      for (int i = 0; status.ok() && i < static_cast<int>(part.size()); i++) {
        status = i == shape_at ? CopyOfVector(context, &part[i]) : Slice(context, groups, group, &part[i]);
      }
      if (!status.ok()) return status;
      if (shape_at >= 0) {
        const int64_t last = part[shape_at].NumElements() - 1;
        SetElement(&part[shape_at], last, Element(part[shape_at], last) / groups);
      }
      tf::Tensor made;
      status = kernel_.Run(context, &twin_, &part, &made);
      if (!status.ok()) return status;
      const int64_t width = LastSize(made.shape()), item = tf::DataTypeSize(made.dtype());
      if (group == 0) {
        tf::TensorShape joined = made.shape();
        joined.set_dim(joined.dims() - 1, width * groups);
        status = context->allocate_temp(made.dtype(), joined, output);
        if (!status.ok()) return status;
      }
      const int64_t rows = width == 0 ? 0 : made.NumElements() / width;
      CopyColumns(static_cast<const char*>(made.data()), width, 0, static_cast<char*>(output->data()), width * groups,
                  group * width, rows, width, item);
    }
    return absl::OkStatus();
  }

  static absl::Status Slice(tf::OpKernelContext* context, int64_t groups, int64_t group, tf::Tensor* tensor) {
    const tf::Tensor from = *tensor;
    const int64_t all = LastSize(from.shape()), width = all / groups;
    if (all % groups != 0) return tf::errors::InvalidArgument(all, " channels cannot be split into ", groups, " groups");
    tf::TensorShape shape = from.shape();
    shape.set_dim(shape.dims() - 1, width);
    absl::Status status = context->allocate_temp(from.dtype(), shape, tensor);
    if (!status.ok()) return status;
    const int64_t rows = all == 0 ? 0 : from.NumElements() / all;
    CopyColumns(static_cast<const char*>(from.data()), all, group * width, static_cast<char*>(tensor->data()), width, 0,
                rows, width, tf::DataTypeSize(from.dtype()));
    return status;
  }

  const ImageOp op_;
  Twin twin_;
  Engine& engine_;
  bool channels_first_ = false;
  std::vector<int64_t> dilations_;  // of the dimensions between batch and channels; empty where all are 1
  WideKernel kernel_;
};

}  // namespace softgpu

#endif
