// Collectives between software GPUs. Those named Collective* are TensorFlow's own CPU code, which knows nothing of NCCL.
// NCCL's ops and reduce-scatter have no CPU code: the devices of a process meet here, and the last one to come computes.
#ifndef HARNESS_SOFTGPU_COLLECTIVES_H_
#define HARNESS_SOFTGPU_COLLECTIVES_H_

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "twin.h"
#include "tensorflow/core/framework/cancellation.h"

namespace softgpu {

// A collective as its CPU kernel does it: in a ring or a tree, through the copies between devices.
class CollectiveTwin : public tf::AsyncOpKernel {
 public:
  explicit CollectiveTwin(tf::OpKernelConstruction* construction)
      : tf::AsyncOpKernel(construction), twin_(construction->device()) {
    OP_REQUIRES_OK(construction, CpuKernel(construction, &twin_, construction->def(), &kernel_));
  }

  void ComputeAsync(tf::OpKernelContext* context, DoneCallback done) override {
    auto* execution = new Execution(context, kernel_.get(), &twin_);
    execution->SetDeviceContext(context->op_device_context());
    auto finish = [execution, done = std::move(done)] {
      execution->Finish();
      delete execution;
      done();
    };
    if (tf::AsyncOpKernel* waiting = kernel_->AsAsync()) {
      waiting->ComputeAsync(execution->context(), std::move(finish));
    } else {
      kernel_->Compute(execution->context());
      finish();
    }
  }

 private:
  Twin twin_;
  std::unique_ptr<tf::OpKernel> kernel_;
};

// One of the devices in a meeting.
struct Guest {
  tf::OpKernelContext* context;
  std::function<void()> done;
  bool sends = true;     // its input takes part
  bool receives = true;  // it gets the result
  Clock::time_point came = Clock::now();

  int device() const { return context->device()->parsed_name().id; }
};

// What the last guest to come does for all of them, in the order of the devices.
using Exchange = std::function<absl::Status(std::vector<Guest>&)>;

class Meetings {
 public:
  static Meetings& Get() {
    static auto* meetings = new Meetings;
    return *meetings;
  }

  void Join(const std::string& key, size_t size, Guest guest, const Exchange& exchange) {
    tf::CancellationManager* cancellation = guest.context->cancellation_manager();
    if (cancellation != nullptr) {
      const tf::CancellationToken token = cancellation->get_cancellation_token();
      // Others of this meeting would wait for ever for one whose step has failed.
      if (!cancellation->RegisterCallback(token, [this, key] { Leave(key); })) {
        guest.context->SetStatus(tf::errors::Cancelled("the step was cancelled before the collective began"));
        guest.done();
        return;
      }
      guest.done = [cancellation, token, done = std::move(guest.done)] {
        cancellation->TryDeregisterCallback(token);
        done();
      };
    }
    std::vector<Guest> guests;
    {
      std::lock_guard<std::mutex> locked(lock_);
      std::vector<Guest>& waiting = waiting_[key];
      waiting.push_back(std::move(guest));
      if (waiting.size() < size) return;
      guests = std::move(waiting);
      waiting_.erase(key);
    }
    std::sort(guests.begin(), guests.end(), [](const Guest& a, const Guest& b) { return a.device() < b.device(); });
    Dismiss(&guests, exchange(guests));
  }

 private:
  void Leave(const std::string& key) {
    std::vector<Guest> guests;
    {
      std::lock_guard<std::mutex> locked(lock_);
      auto found = waiting_.find(key);
      if (found == waiting_.end()) return;
      guests = std::move(found->second);
      waiting_.erase(found);
    }
    Dismiss(&guests, tf::errors::Cancelled("another device's part of the collective was cancelled"));
  }

  static void Dismiss(std::vector<Guest>* guests, const absl::Status& status) {
    for (Guest& guest : *guests) {
      if (!status.ok()) {
        guest.context->SetStatus(status);
      } else {
        Faults::Get().Computed(guest.context, guest.came);
      }
    }
    for (Guest& guest : *guests) guest.done();
  }

  std::mutex lock_;
  std::map<std::string, std::vector<Guest>> waiting_;
};

enum class Merge { kSum, kProduct, kMinimum, kMaximum };

template <typename T>
void MergeInto(Merge merge, const T* from, T* into, int64_t size) {
  for (int64_t i = 0; i < size; i++) {
    switch (merge) {
      case Merge::kSum: into[i] = into[i] + from[i]; break;
      case Merge::kProduct: into[i] = into[i] * from[i]; break;
      case Merge::kMinimum: into[i] = std::min(into[i], from[i]); break;
      case Merge::kMaximum: into[i] = std::max(into[i], from[i]); break;
    }
  }
}

template <typename T>
void DivideBy(int divisor, T* values, int64_t size) {
  for (int64_t i = 0; i < size; i++) values[i] = values[i] / static_cast<T>(divisor);
}

inline absl::Status MergeTensors(Merge merge, const tf::Tensor& from, tf::Tensor* into) {
  switch (from.dtype()) {
#define HARNESS_MERGE(T)                                                                  \
  case tf::DataTypeToEnum<T>::value:                                                      \
    MergeInto<T>(merge, static_cast<const T*>(from.data()), static_cast<T*>(into->data()), \
                 from.NumElements());                                                     \
    return absl::OkStatus()
    HARNESS_MERGE(float);
    HARNESS_MERGE(double);
    HARNESS_MERGE(int32_t);
    HARNESS_MERGE(int64_t);
    HARNESS_MERGE(Eigen::half);
    HARNESS_MERGE(Eigen::bfloat16);
#undef HARNESS_MERGE
    default:
      return tf::errors::Unimplemented("software GPUs cannot reduce tensors of type ", tf::DataTypeString(from.dtype()));
  }
}

inline absl::Status DivideTensor(int divisor, tf::Tensor* values) {
  switch (values->dtype()) {
#define HARNESS_DIVIDE(T)                                                           \
  case tf::DataTypeToEnum<T>::value:                                                \
    DivideBy<T>(divisor, static_cast<T*>(values->data()), values->NumElements()); \
    return absl::OkStatus()
    HARNESS_DIVIDE(float);
    HARNESS_DIVIDE(double);
    HARNESS_DIVIDE(int32_t);
    HARNESS_DIVIDE(int64_t);
    HARNESS_DIVIDE(Eigen::half);
    HARNESS_DIVIDE(Eigen::bfloat16);
#undef HARNESS_DIVIDE
    default:
      return tf::errors::Unimplemented("software GPUs cannot divide tensors of type ",
                                       tf::DataTypeString(values->dtype()));
  }
}

// The inputs of all senders, merged in the order of the devices. What has to be equal is checked: NCCL would read on.
inline absl::Status Reduced(std::vector<Guest>& guests, Merge merge, tf::Tensor* result) {
  bool first = true;
  for (Guest& guest : guests) {
    if (!guest.sends) continue;
    tf::Tensor input = guest.context->input(0);
    if (Faults::Get().Drops(guest.context)) {
      absl::Status status = guest.context->allocate_temp(input.dtype(), input.shape(), &input);
      if (!status.ok()) return status;
      memset(input.data(), 0, input.TotalBytes());
    }
    if (first) {
      absl::Status status = guest.context->allocate_temp(input.dtype(), input.shape(), result);
      if (!status.ok()) return status;
      memcpy(result->data(), input.data(), input.TotalBytes());
      first = false;
      continue;
    }
    if (input.dtype() != result->dtype() || input.NumElements() != result->NumElements()) {
      return tf::errors::InvalidArgument("the devices of one collective give it different tensors: ",
                                         result->DebugString(0), " and ", input.DebugString(0));
    }
    absl::Status status = MergeTensors(merge, input, result);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

inline absl::Status GiveToReceivers(std::vector<Guest>& guests, const tf::Tensor& result) {
  for (Guest& guest : guests) {
    if (!guest.receives) continue;
    tf::Tensor* output = nullptr;
    absl::Status status = guest.context->allocate_output(0, result.shape(), &output);
    if (!status.ok()) return status;
    memcpy(output->data(), result.data(), result.TotalBytes());
  }
  return absl::OkStatus();
}

// The name of one call of a collective, with the iteration of the loop that it is in.
inline std::string CallKey(tf::OpKernelContext* context, const std::string& name) {
  const tf::FrameAndIter where = context->frame_iter();
  return tf::strings::StrCat(name, ":", where.frame_id, ":", where.iter_id);
}

// NcclAllReduce, _NcclReduceSend, _NcclReduceRecv, _NcclBroadcastSend, _NcclBroadcastRecv: as NcclReduce and
// NcclBroadcast are rewritten by TensorFlow's graph passes.
class NcclKernel : public tf::AsyncOpKernel {
 public:
  explicit NcclKernel(tf::OpKernelConstruction* construction) : tf::AsyncOpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("num_devices", &devices_));
    OP_REQUIRES_OK(construction, construction->GetAttr("shared_name", &name_));
    const std::string& op = construction->def().op();
    broadcasts_ = absl::StrContains(op, "Broadcast");
    sends_ = op != "_NcclBroadcastRecv";
    receives_ = construction->num_outputs() > 0;
    std::string reduction = "sum";
    if (!broadcasts_) OP_REQUIRES_OK(construction, construction->GetAttr("reduction", &reduction));
    merge_ = reduction == "min" ? Merge::kMinimum
             : reduction == "max" ? Merge::kMaximum
             : reduction == "prod" ? Merge::kProduct
                                   : Merge::kSum;
  }

  void ComputeAsync(tf::OpKernelContext* context, DoneCallback done) override {
    Guest guest{context, std::move(done), sends_, receives_};
    const Merge merge = merge_;
    const std::string call = tf::strings::StrCat(name_, ":", context->step_id());
    Meetings::Get().Join(CallKey(context, call), devices_, std::move(guest), [merge](std::vector<Guest>& guests) {
      tf::Tensor result;
      absl::Status status = Reduced(guests, merge, &result);
      return status.ok() ? GiveToReceivers(guests, result) : status;
    });
  }

 private:
  int devices_ = 0;
  std::string name_;
  bool broadcasts_ = false, sends_ = true, receives_ = true;
  Merge merge_ = Merge::kSum;
};

// CollectiveReduceScatterV2. TensorFlow does it through NCCL alone.
class ReduceScatter : public tf::AsyncOpKernel {
 public:
  explicit ReduceScatter(tf::OpKernelConstruction* construction) : tf::AsyncOpKernel(construction) {
    std::string merge, final;
    OP_REQUIRES_OK(construction, construction->GetAttr("merge_op", &merge));
    OP_REQUIRES_OK(construction, construction->GetAttr("final_op", &final));
    merge_ = merge == "Mul" ? Merge::kProduct
             : merge == "Min" ? Merge::kMinimum
             : merge == "Max" ? Merge::kMaximum
                              : Merge::kSum;
    divides_ = final == "Div";
  }

  void ComputeAsync(tf::OpKernelContext* context, DoneCallback done) override {
    const int size = context->input(1).scalar<int>()();
    const int group = context->input(2).scalar<int>()(), instance = context->input(3).scalar<int>()();
    const tf::Tensor& input = context->input(0);
    OP_REQUIRES_ASYNC(context, size > 0 && input.dims() > 0 && input.dim_size(0) % size == 0,
                      tf::errors::InvalidArgument("the first dimension of ", input.shape().DebugString(),
                                                  " cannot be scattered over a group of ", size),
                      done);
    // In eager code each device has a step of its own, so that the step is no part of the key.
    const std::string key = CallKey(context, tf::strings::StrCat("reduce-scatter:", group, ":", instance));
    const Merge merge = merge_;
    const bool divides = divides_;
    Meetings::Get().Join(key, size, Guest{context, std::move(done)}, [merge, divides](std::vector<Guest>& guests) {
      tf::Tensor result;
      absl::Status status = Reduced(guests, merge, &result);
      if (status.ok() && divides) status = DivideTensor(guests.size(), &result);
      return status.ok() ? Scattered(guests, result) : status;
    });
  }

 private:
  static absl::Status Scattered(std::vector<Guest>& guests, const tf::Tensor& result) {
    tf::TensorShape shape = result.shape();
    shape.set_dim(0, shape.dim_size(0) / guests.size());
    const char* from = static_cast<const char*>(result.data());
    for (Guest& guest : guests) {
      tf::Tensor* output = nullptr;
      absl::Status status = guest.context->allocate_output(0, shape, &output);
      if (!status.ok()) return status;
      memcpy(output->data(), from, output->TotalBytes());
      from += output->TotalBytes();
    }
    return absl::OkStatus();
  }

  Merge merge_ = Merge::kSum;
  bool divides_ = false;
};

}  // namespace softgpu

#endif
