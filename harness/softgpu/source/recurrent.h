// cuDNN's recurrent networks, which TensorFlow has no CPU kernel for: Keras takes them for LSTM and GRU on a GPU.
#ifndef HARNESS_SOFTGPU_RECURRENT_H_
#define HARNESS_SOFTGPU_RECURRENT_H_

#include <cmath>
#include <string>
#include <vector>

#include "twin.h"

namespace softgpu {

enum class Cell { kRelu, kTanh, kLstm, kGru };

// The attributes of both ops.
struct Network {
  Cell cell = Cell::kLstm;
  bool bidirectional = false, time_major = true;

  int gates() const { return cell == Cell::kLstm ? 4 : cell == Cell::kGru ? 3 : 1; }
  int directions() const { return bidirectional ? 2 : 1; }

  absl::Status Read(tf::OpKernelConstruction* construction) {
    std::string mode, input, direction;
    float dropout = 0;
    int projection = 0;
    TF_RETURN_IF_ERROR(construction->GetAttr("rnn_mode", &mode));
    TF_RETURN_IF_ERROR(construction->GetAttr("input_mode", &input));
    TF_RETURN_IF_ERROR(construction->GetAttr("direction", &direction));
    TF_RETURN_IF_ERROR(construction->GetAttr("dropout", &dropout));
    TF_RETURN_IF_ERROR(construction->GetAttr("num_proj", &projection));
    TF_RETURN_IF_ERROR(construction->GetAttr("time_major", &time_major));
    cell = mode == "lstm" ? Cell::kLstm : mode == "gru" ? Cell::kGru : mode == "rnn_relu" ? Cell::kRelu : Cell::kTanh;
    bidirectional = direction == "bidirectional";
    if (input == "skip_input" || dropout != 0 || projection != 0) {
      return tf::errors::Unimplemented(
          "software GPUs run ", construction->def().op(),
          " only with input_mode 'linear_input', dropout 0 and num_proj 0; use these, or run the op on a real GPU");
    }
    return absl::OkStatus();
  }
};

// The sizes of one call, and where things lie in its buffers.
struct Extent {
  int64_t steps, batch, inputs, hidden, layers;
  Network network;
  std::vector<int> lengths;

  absl::Status Read(tf::OpKernelContext* context, const Network& of) {
    network = of;
    const tf::Tensor &x = context->input(0), &h = context->input(1), &c = context->input(2), &p = context->input(3);
    const tf::Tensor& sequence_lengths = context->input(4);
    if (x.dims() != 3 || h.dims() != 3) return tf::errors::InvalidArgument("input and input_h need three dimensions");
    const int time = network.time_major ? 0 : 1, row = 1 - time;
    steps = x.dim_size(time);
    batch = x.dim_size(row);
    inputs = x.dim_size(2);
    hidden = h.dim_size(2);
    layers = h.dim_size(time) / network.directions();
    if (h.dim_size(row) != batch || layers < 1 || (network.cell == Cell::kLstm && c.shape() != h.shape())) {
      return tf::errors::InvalidArgument("input_h and input_c do not fit the input: ", h.shape().DebugString(), ", ",
                                         c.shape().DebugString(), ", ", x.shape().DebugString());
    }
    if (p.NumElements() != Parameters()) {
      return tf::errors::InvalidArgument("params has ", p.NumElements(), " numbers instead of ", Parameters());
    }
    if (sequence_lengths.NumElements() != batch) {
      return tf::errors::InvalidArgument("sequence_lengths has ", sequence_lengths.NumElements(), " lengths for a batch of ", batch);
    }
    lengths.assign(sequence_lengths.flat<int>().data(), sequence_lengths.flat<int>().data() + batch);
    for (int length : lengths) {
      if (length < 0 || length > steps) return tf::errors::InvalidArgument("a sequence length is ", length, ", but the input has ", steps, " steps");
    }
    return absl::OkStatus();
  }

  int64_t Width(int64_t layer) const { return layer == 0 ? inputs : hidden * network.directions(); }

  // cuDNN's order: the weights of all layers, then all biases; each layer its directions, each direction the weights of
  // the input for every gate, then those of the state.
  int64_t Weights(int64_t layer, int direction) const {
    int64_t at = 0;
    for (int64_t i = 0; i < layer; i++) at += network.directions() * LayerWeights(i);
    return at + direction * LayerWeights(layer);
  }
  int64_t LayerWeights(int64_t layer) const { return network.gates() * hidden * (Width(layer) + hidden); }
  int64_t Biases(int64_t layer, int direction) const {
    return Weights(layers, 0) + (layer * network.directions() + direction) * 2 * network.gates() * hidden;
  }
  int64_t Parameters() const { return Biases(layers, 0); }

  // Of a tensor [time, batch, width] or [batch, time, width].
  int64_t At(int64_t first, int64_t row, int64_t first_size, int64_t width) const {
    return (network.time_major ? first * batch + row : row * first_size + first) * width;
  }
  int64_t State(int64_t layer, int direction, int64_t row) const {
    return At(layer * network.directions() + direction, row, layers * network.directions(), hidden);
  }

  // What the gradient needs of each layer, direction, step and row: the gates, the state of the cell or the part of the
  // candidate that comes from the state, and the output.
  int64_t Kept() const { return (network.gates() + 2) * hidden; }
  int64_t Record(int64_t layer, int direction, int64_t step, int64_t row) const {
    return (((layer * network.directions() + direction) * steps + step) * batch + row) * Kept();
  }
  int64_t Records() const { return layers * network.directions() * steps * batch * Kept(); }
};

template <typename T>
T Dot(const T* a, const T* b, int64_t size) {
  using Vector = Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, 1>>;
  return Vector(a, size).dot(Vector(b, size));
}

template <typename T>
void AddScaled(T factor, const T* from, T* into, int64_t size) {
  for (int64_t i = 0; i < size; i++) into[i] += factor * from[i];
}

template <typename T>
T Sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

// Numbers of the type that is computed with: half and bfloat16 are widened.
template <typename T, typename Stored>
std::vector<T> Widened(const tf::Tensor& tensor) {
  const Stored* from = static_cast<const Stored*>(tensor.data());
  std::vector<T> into(tensor.NumElements());
  for (int64_t i = 0; i < tensor.NumElements(); i++) into[i] = static_cast<T>(from[i]);
  return into;
}

template <typename T, typename Stored>
absl::Status Output(tf::OpKernelContext* context, int index, const tf::TensorShape& shape, const std::vector<T>& from) {
  tf::Tensor* output = nullptr;
  TF_RETURN_IF_ERROR(context->allocate_output(index, shape, &output));
  Stored* into = static_cast<Stored*>(output->data());
  for (int64_t i = 0; i < output->NumElements(); i++) into[i] = static_cast<Stored>(from[i]);
  return absl::OkStatus();
}

// The gates of one step of one row. `kept` gets them, and the two vectors after them.
template <typename T>
void Step(const Extent& e, int64_t width, const T* weights, const T* biases, const T* x, const T* h, const T* c,
          T* kept) {
  const int64_t n = e.hidden;
  const int gates = e.network.gates();
  const T *state_weights = weights + gates * n * width, *state_biases = biases + gates * n;
  T *cell = kept + gates * n, *output = cell + n;
  for (int64_t j = 0; j < gates * n; j++) kept[j] = Dot(weights + j * width, x, width) + biases[j];
  for (int64_t j = 0; j < n; j++) {
    auto from_state = [&](int gate) {
      return Dot(state_weights + (gate * n + j) * n, h, n) + state_biases[gate * n + j];
    };
    switch (e.network.cell) {
      case Cell::kRelu: output[j] = kept[j] = std::max(T(0), kept[j] + from_state(0)); break;
      case Cell::kTanh: output[j] = kept[j] = std::tanh(kept[j] + from_state(0)); break;
      case Cell::kLstm: {  // input, forget, candidate, output
        for (int gate : {0, 1, 3}) kept[gate * n + j] = Sigmoid(kept[gate * n + j] + from_state(gate));
        kept[2 * n + j] = std::tanh(kept[2 * n + j] + from_state(2));
        cell[j] = kept[n + j] * c[j] + kept[j] * kept[2 * n + j];
        output[j] = kept[3 * n + j] * std::tanh(cell[j]);
        break;
      }
      case Cell::kGru: {  // reset, update, candidate
        for (int gate : {0, 1}) kept[gate * n + j] = Sigmoid(kept[gate * n + j] + from_state(gate));
        cell[j] = from_state(2);
        kept[2 * n + j] = std::tanh(kept[2 * n + j] + kept[j] * cell[j]);
        output[j] = (T(1) - kept[n + j]) * kept[2 * n + j] + kept[n + j] * h[j];
        break;
      }
    }
  }
}

// The gradient of Step. `dh` holds that of the output and `dc` that of the cell; both become those of the step before.
// `from_input` and `from_state` get those of the gates before their functions.
template <typename T>
void StepGradient(const Extent& e, const T* kept, const T* h, const T* c, T* dh, T* dc, T* from_input, T* from_state) {
  const int64_t n = e.hidden;
  const T *cell = kept + e.network.gates() * n, *output = cell + n;
  for (int64_t j = 0; j < n; j++) {
    const T gradient = dh[j];
    dh[j] = 0;
    switch (e.network.cell) {
      case Cell::kRelu: from_input[j] = from_state[j] = output[j] > 0 ? gradient : T(0); break;
      case Cell::kTanh: from_input[j] = from_state[j] = gradient * (T(1) - output[j] * output[j]); break;
      case Cell::kLstm: {
        const T i = kept[j], f = kept[n + j], g = kept[2 * n + j], o = kept[3 * n + j], tanh = std::tanh(cell[j]);
        const T of_cell = dc[j] + gradient * o * (T(1) - tanh * tanh);
        from_input[j] = of_cell * g * i * (T(1) - i);
        from_input[n + j] = of_cell * c[j] * f * (T(1) - f);
        from_input[2 * n + j] = of_cell * i * (T(1) - g * g);
        from_input[3 * n + j] = gradient * tanh * o * (T(1) - o);
        for (int gate = 0; gate < 4; gate++) from_state[gate * n + j] = from_input[gate * n + j];
        dc[j] = of_cell * f;
        break;
      }
      case Cell::kGru: {
        const T r = kept[j], u = kept[n + j], g = kept[2 * n + j];
        const T of_candidate = gradient * (T(1) - u) * (T(1) - g * g);
        from_input[2 * n + j] = of_candidate;
        from_state[2 * n + j] = of_candidate * r;
        from_input[j] = from_state[j] = of_candidate * cell[j] * r * (T(1) - r);
        from_input[n + j] = from_state[n + j] = gradient * (h[j] - g) * u * (T(1) - u);
        dh[j] = gradient * u;
        break;
      }
    }
  }
}

// The order of the steps of a row: the second direction begins at the end of its sequence.
inline int64_t StepAt(int64_t index, int direction, int64_t length) {
  return direction == 0 ? index : length - 1 - index;
}

// The input of a layer, [steps, batch, width] in time-major order: the outputs of the layer below, side by side.
template <typename T>
std::vector<T> LayerInput(const Extent& e, int64_t layer, const std::vector<T>& x, const std::vector<T>& records) {
  const int64_t width = e.Width(layer);
  std::vector<T> into(e.steps * e.batch * width, T(0));
  for (int64_t row = 0; row < e.batch; row++) {
    for (int64_t step = 0; step < e.steps; step++) {
      T* at = into.data() + (step * e.batch + row) * width;
      if (layer == 0) {
        std::copy_n(x.data() + e.At(step, row, e.steps, width), width, at);
        continue;
      }
      for (int direction = 0; direction < e.network.directions() && step < e.lengths[row]; direction++) {
        const int64_t record = e.Record(layer - 1, direction, step, row);
        std::copy_n(records.data() + record + (e.network.gates() + 1) * e.hidden, e.hidden, at + direction * e.hidden);
      }
    }
  }
  return into;
}

template <typename T, typename Stored>
absl::Status RunForward(tf::OpKernelContext* context, const Extent& e) {
  const bool lstm = e.network.cell == Cell::kLstm;
  const int64_t n = e.hidden, gates = e.network.gates();
  const std::vector<T> x = Widened<T, Stored>(context->input(0)), h0 = Widened<T, Stored>(context->input(1)),
                       c0 = Widened<T, Stored>(context->input(2)), params = Widened<T, Stored>(context->input(3));
  std::vector<T> last_h = h0, last_c = c0, records(e.Records(), T(0)), h(n), c(n);
  for (int64_t layer = 0; layer < e.layers; layer++) {
    const int64_t width = e.Width(layer);
    const std::vector<T> input = LayerInput(e, layer, x, records);
    for (int direction = 0; direction < e.network.directions(); direction++) {
      for (int64_t row = 0; row < e.batch; row++) {
        std::copy_n(h0.data() + e.State(layer, direction, row), n, h.data());
        if (lstm) std::copy_n(c0.data() + e.State(layer, direction, row), n, c.data());
        for (int64_t i = 0; i < e.lengths[row]; i++) {
          const int64_t step = StepAt(i, direction, e.lengths[row]);
          T* kept = records.data() + e.Record(layer, direction, step, row);
          Step(e, width, params.data() + e.Weights(layer, direction), params.data() + e.Biases(layer, direction),
               input.data() + (step * e.batch + row) * width, h.data(), c.data(), kept);
          std::copy_n(kept + (gates + 1) * n, n, h.data());
          if (lstm) std::copy_n(kept + gates * n, n, c.data());
        }
        std::copy_n(h.data(), n, last_h.data() + e.State(layer, direction, row));
        if (lstm) std::copy_n(c.data(), n, last_c.data() + e.State(layer, direction, row));
      }
    }
  }
  const int64_t width = n * e.network.directions();
  std::vector<T> outputs(e.steps * e.batch * width, T(0));
  for (int64_t row = 0; row < e.batch; row++) {
    for (int64_t step = 0; step < e.lengths[row]; step++) {
      for (int direction = 0; direction < e.network.directions(); direction++) {
        std::copy_n(records.data() + e.Record(e.layers - 1, direction, step, row) + (gates + 1) * n, n,
                    outputs.data() + e.At(step, row, e.steps, width) + direction * n);
      }
    }
  }
  tf::TensorShape shape = context->input(0).shape();
  shape.set_dim(2, width);
  TF_RETURN_IF_ERROR((Output<T, Stored>(context, 0, shape, outputs)));
  TF_RETURN_IF_ERROR((Output<T, Stored>(context, 1, context->input(1).shape(), last_h)));
  TF_RETURN_IF_ERROR((Output<T, Stored>(context, 2, context->input(2).shape(), last_c)));
  // The space belongs to the op: numbers of the type that it computes with, in a tensor of the type that it stores.
  const int64_t items = (e.Records() * sizeof(T) + sizeof(Stored) - 1) / sizeof(Stored);
  tf::Tensor *reserved = nullptr, *host = nullptr;
  TF_RETURN_IF_ERROR(context->allocate_output(3, tf::TensorShape({items}), &reserved));
  memcpy(reserved->data(), records.data(), e.Records() * sizeof(T));
  return context->allocate_output(4, tf::TensorShape({0}), &host);
}

template <typename T, typename Stored>
absl::Status RunGradient(tf::OpKernelContext* context, const Extent& e) {
  const bool lstm = e.network.cell == Cell::kLstm;
  const int64_t n = e.hidden, gates = e.network.gates(), directions = e.network.directions();
  const std::vector<T> x = Widened<T, Stored>(context->input(0)), h0 = Widened<T, Stored>(context->input(1)),
                       c0 = Widened<T, Stored>(context->input(2)), params = Widened<T, Stored>(context->input(3)),
                       d_output = Widened<T, Stored>(context->input(8)), d_last_h = Widened<T, Stored>(context->input(9)),
                       d_last_c = Widened<T, Stored>(context->input(10));
  const tf::Tensor& reserved = context->input(11);
  if (reserved.TotalBytes() < static_cast<size_t>(e.Records()) * sizeof(T)) {
    return tf::errors::InvalidArgument("reserve_space does not come from the forward op; call that op with is_training=True");
  }
  std::vector<T> records(e.Records());
  memcpy(records.data(), reserved.data(), records.size() * sizeof(T));
  std::vector<T> d_h0(h0.size(), T(0)), d_c0(c0.size(), T(0)), d_params(params.size(), T(0));
  // The gradient of what a layer gives, in time-major order.
  std::vector<T> above(e.steps * e.batch * n * directions);
  for (int64_t row = 0; row < e.batch; row++) {
    for (int64_t step = 0; step < e.steps; step++) {
      std::copy_n(d_output.data() + e.At(step, row, e.steps, n * directions), n * directions,
                  above.data() + (step * e.batch + row) * n * directions);
    }
  }
  std::vector<T> dh(n), dc(n), from_input(gates * n), from_state(gates * n);
  for (int64_t layer = e.layers - 1; layer >= 0; layer--) {
    const int64_t width = e.Width(layer);
    const std::vector<T> input = LayerInput(e, layer, x, records);
    std::vector<T> below(e.steps * e.batch * width, T(0));
    for (int direction = 0; direction < directions; direction++) {
      const T* weights = params.data() + e.Weights(layer, direction);
      T* d_weights = d_params.data() + e.Weights(layer, direction);
      T* d_biases = d_params.data() + e.Biases(layer, direction);
      for (int64_t row = 0; row < e.batch; row++) {
        const int64_t state = e.State(layer, direction, row), length = e.lengths[row];
        std::copy_n(d_last_h.data() + state, n, dh.data());
        if (lstm) std::copy_n(d_last_c.data() + state, n, dc.data());
        for (int64_t i = length - 1; i >= 0; i--) {
          const int64_t step = StepAt(i, direction, length);
          const T* kept = records.data() + e.Record(layer, direction, step, row);
          const T *h = h0.data() + state, *c = lstm ? c0.data() + state : nullptr;
          if (i > 0) {
            const T* before = records.data() + e.Record(layer, direction, StepAt(i - 1, direction, length), row);
            c = before + gates * n;
            h = c + n;
          }
          AddScaled(T(1), above.data() + (step * e.batch + row) * n * directions + direction * n, dh.data(), n);
          StepGradient(e, kept, h, c, dh.data(), dc.data(), from_input.data(), from_state.data());
          const T* at = input.data() + (step * e.batch + row) * width;
          T* d_at = below.data() + (step * e.batch + row) * width;
          for (int64_t j = 0; j < gates * n; j++) {
            AddScaled(from_input[j], at, d_weights + j * width, width);
            AddScaled(from_input[j], weights + j * width, d_at, width);
            AddScaled(from_state[j], h, d_weights + gates * n * width + j * n, n);
            AddScaled(from_state[j], weights + gates * n * width + j * n, dh.data(), n);
            d_biases[j] += from_input[j];
            d_biases[gates * n + j] += from_state[j];
          }
        }
        std::copy_n(dh.data(), n, d_h0.data() + state);
        if (lstm) std::copy_n(dc.data(), n, d_c0.data() + state);
      }
    }
    above = std::move(below);
  }
  std::vector<T> d_x(x.size());
  for (int64_t row = 0; row < e.batch; row++) {
    for (int64_t step = 0; step < e.steps; step++) {
      std::copy_n(above.data() + (step * e.batch + row) * e.inputs, e.inputs,
                  d_x.data() + e.At(step, row, e.steps, e.inputs));
    }
  }
  TF_RETURN_IF_ERROR((Output<T, Stored>(context, 0, context->input(0).shape(), d_x)));
  TF_RETURN_IF_ERROR((Output<T, Stored>(context, 1, context->input(1).shape(), d_h0)));
  TF_RETURN_IF_ERROR((Output<T, Stored>(context, 2, context->input(2).shape(), d_c0)));
  return Output<T, Stored>(context, 3, context->input(3).shape(), d_params);
}

template <bool kGradient, typename T, typename Stored>
absl::Status RunNetwork(tf::OpKernelContext* context, const Extent& extent) {
  return kGradient ? RunGradient<T, Stored>(context, extent) : RunForward<T, Stored>(context, extent);
}

template <bool kGradient>
class RecurrentKernel : public tf::OpKernel {
 public:
  explicit RecurrentKernel(tf::OpKernelConstruction* construction)
      : tf::OpKernel(construction), engine_(Engine::Of(construction->device())) {
    OP_REQUIRES_OK(construction, network_.Read(construction));
  }

  void Compute(tf::OpKernelContext* context) override {
    InTurnWithFaults(engine_, context, [&] { ComputeAlone(context); });
  }

  bool IsExpensive() override { return false; }

 private:
  void ComputeAlone(tf::OpKernelContext* context) {
    Extent extent;
    OP_REQUIRES_OK(context, extent.Read(context, network_));
    switch (context->input_dtype(0)) {
      case tf::DT_DOUBLE: OP_REQUIRES_OK(context, (RunNetwork<kGradient, double, double>(context, extent))); break;
      case tf::DT_HALF: OP_REQUIRES_OK(context, (RunNetwork<kGradient, float, Eigen::half>(context, extent))); break;
      case tf::DT_BFLOAT16: OP_REQUIRES_OK(context, (RunNetwork<kGradient, float, Eigen::bfloat16>(context, extent))); break;
      default: OP_REQUIRES_OK(context, (RunNetwork<kGradient, float, float>(context, extent))); break;
    }
  }

  Network network_;
  Engine& engine_;
};

using Recurrent = RecurrentKernel<false>;
using RecurrentGradient = RecurrentKernel<true>;

}  // namespace softgpu

#endif
