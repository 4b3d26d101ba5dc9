// Faults of the machine, in what TensorFlow executes. A table of lines `kind key=value …` says which; it can be replaced
// while programs run. harness/devices/described/state.py writes it from the description of a machine.
#ifndef HARNESS_SOFTGPU_FAULTS_H_
#define HARNESS_SOFTGPU_FAULTS_H_

#include <fcntl.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "machine.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace softgpu {

namespace tf = tensorflow;
using Clock = std::chrono::steady_clock;

// What the stand-in for NVML reads of each card: see driver_source/state.h.
struct Work {
  std::atomic<uint64_t> busy_ns, last_ns, lost, unused;
};

struct Fault {
  std::string kind;
  std::map<std::string, std::string> keys;
  std::set<std::string> ops;  // empty: all
  std::set<int64_t> elements;  // empty: any
  int device = -1, from = -1, to = -1;
  double probability = 1;

  double Number(const char* key, double otherwise) const {
    auto found = keys.find(key);
    return found == keys.end() ? otherwise : atof(found->second.c_str());
  }
  int64_t Integer(const char* key, int64_t otherwise) const {
    auto found = keys.find(key);
    return found == keys.end() ? otherwise : atoll(found->second.c_str());
  }
  std::string Text(const char* key) const {
    auto found = keys.find(key);
    return found == keys.end() ? "" : found->second;
  }
  bool Hits(const std::string& op) const { return ops.empty() || ops.count(op) > 0; }
};

class Faults {
 public:
  static Faults& Get() {
    static Faults* faults = new Faults;
    return *faults;
  }

  // Why nothing that an op computes in numbers of a type ("*": of any) can be spoilt; empty where it can.
  using WhyNot = std::string (*)(const std::string& op, const std::string& type);

  // Replaces the table. Empty, or what is wrong with a line; the old table then stays.
  std::string Set(const std::string& text, WhyNot why_not) {
    auto table = std::make_shared<std::vector<Fault>>();
    std::istringstream lines(text);
    uint64_t seed = 0;
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      Fault fault;
      words >> fault.kind;
      for (std::string word; words >> word;) {
        const size_t equals = word.find('=');
        if (equals == std::string::npos) return "not key=value: " + word;
        fault.keys[word.substr(0, equals)] = word.substr(equals + 1);
      }
      if (fault.kind == "seed") {
        seed = fault.Integer("value", 0);
        continue;
      }
      static const std::set<std::string> kinds = {"flip", "scale", "garbage", "jitter", "slow",  "leak",
                                                  "lost", "stuck", "room",    "drop",   "copy", "link"};
      if (kinds.count(fault.kind) == 0) return "an unknown kind of fault: " + fault.kind;
      std::istringstream ops(fault.Text("op"));
      std::string idle;
      bool acts = false;
      for (std::string op; std::getline(ops, op, ',');) {
        const std::string why = why_not(op, fault.Text("dtype"));
        acts |= why.empty();
        if (idle.empty()) idle = why;
        fault.ops.insert(op);
      }
      if (!acts && !idle.empty()) return idle;
      std::istringstream elements(fault.Text("elements"));
      for (std::string each; std::getline(elements, each, ',');) fault.elements.insert(atoll(each.c_str()));
      fault.device = fault.Integer("device", -1);
      fault.from = fault.Integer("from", -1);
      fault.to = fault.Integer("to", -1);
      fault.probability = fault.Number("p", 1);
      table->push_back(std::move(fault));
    }
    Machine::Get().Limit(-1, 0);
    for (const Fault& fault : *table) {
      if (fault.kind == "room") Machine::Get().Limit(fault.device, fault.Integer("bytes", 0));
    }
    std::lock_guard<std::mutex> locked(lock_);
    random_.seed(seed);
    for (auto& count : executed_) count = 0;
    for (auto& lost : lost_) lost = false;
    active_ = !table->empty();
    table_ = std::move(table);
    return "";
  }

  // The page that the stand-in for NVML reads.
  void ShareWork(const std::string& path) {
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void* page = mmap(nullptr, sizeof(Work) * kMost, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) work_ = static_cast<Work*>(page);
  }
  void NumberCard(int device, int by_driver) { numbers_[device] = by_driver; }

  // The share of its data that a device contributes to a collective: all, or none.
  bool Drops(tf::OpKernelContext* context) {
    if (!active_) return false;
    const std::string& op = context->op_kernel().type_string();
    if (!absl::StartsWith(op, "Collective") && op.find("Nccl") == std::string::npos) return false;
    // What receives has no share of its own.
    if (op == "CollectiveBcastRecvV2") return false;
    std::string hint;
    if (!tf::TryGetNodeAttr(context->op_kernel().def(), "communication_hint", &hint)) hint = "nccl";
    // "auto" is a ring too, unless the session prefers NCCL.
    if (hint != "nccl") hint = "ring";
    for (const Fault& fault : *Table()) {
      if (fault.kind != "drop" || fault.device != DeviceOf(context)) continue;
      const std::string wanted = fault.Text("hint");
      if (wanted.empty() || wanted == hint) return true;
    }
    return false;
  }

  // After a kernel, with its outputs in place.
  void Computed(tf::OpKernelContext* context, Clock::time_point began) {
    const int device = DeviceOf(context);
    CountWork(device, began);
    if (!active_) return;
    const std::string& op = context->op_kernel().type_string();
    auto table = Table();
    const int64_t executed = ++executed_[device];
    for (const Fault& fault : *table) {
      if (fault.device != device) continue;
      if (fault.kind == "lost" && executed > fault.Integer("after", 0)) {
        if (work_ != nullptr) work_[numbers_[device]].lost = 1;
        lost_[device] = true;
        context->SetStatus(tf::errors::Internal(OfLost(device)));
        return;
      }
      if (fault.kind == "slow") Wait(began, fault.Number("factor", 1));
      if (fault.kind == "leak" && fault.Hits(op)) {
        tf::Allocator* memory = context->device()->GetAllocator(tf::AllocatorAttributes());
        memory->AllocateRaw(64, fault.Integer("bytes", 0), tf::AllocationAttributes(false, false, nullptr));
      }
    }
    for (int i = 0; i < context->num_outputs(); i++) {
      tf::Tensor* output = context->mutable_output(i);
      if (output == nullptr || output->TotalBytes() == 0) continue;
      if (context->op_kernel().output_memory_types()[i] != tf::DEVICE_MEMORY) continue;
      if (tf::DataTypeSize(output->dtype()) == 0) continue;
      for (const Fault& fault : *table) {
        if (fault.device != device || !fault.Hits(op)) continue;
        Spoil(fault, output);
      }
      Stick(*table, output->data(), output->TotalBytes());
    }
  }

  // A copy to, from or between devices. Empty, or why it failed.
  std::string Copy(void* to, const void* from, uint64_t size) {
    if (!active_) {
      memcpy(to, from, size);
      return "";
    }
    const auto began = Clock::now();
    const int source = Machine::Get().OwnerOf(from), target = Machine::Get().OwnerOf(to);
    for (int card : {source, target}) {
      if (card >= 0 && card < kMost && lost_[card]) return OfLost(card);
    }
    auto table = Table();
    const Fault* hit = nullptr;
    for (const Fault& fault : *table) {
      if (fault.kind == "copy" && fault.from == source && fault.to == target && Happens(fault)) hit = &fault;
    }
    const std::string mode = hit == nullptr ? "" : hit->Text("mode");
    char* bytes = static_cast<char*>(to);
    if (mode == "zeros") {
      memset(to, 0, size);
    } else if (mode == "shifted" && size > 8) {
      memcpy(bytes + 8, from, size - 8);
      memcpy(bytes, static_cast<const char*>(from) + size - 8, 8);
    } else if (mode != "stale") {
      memcpy(to, from, size);
      if (mode == "flip" && size > 0) bytes[Draw() % size] ^= 1 << Draw() % 8;
    }
    for (const Fault& fault : *table) {
      const bool there = source == fault.from && target == fault.to, back = source == fault.to && target == fault.from;
      if (fault.kind == "link" && (there || back)) Wait(began, fault.Number("factor", 1));
    }
    if (target >= 0) Stick(*table, to, size);
    return "";
  }

 private:
  static constexpr int kMost = 64;

  Faults() {
    for (int i = 0; i < kMost; i++) numbers_[i] = i;
  }

  std::shared_ptr<const std::vector<Fault>> Table() {
    std::lock_guard<std::mutex> locked(lock_);
    return table_;
  }
  uint64_t Draw() {
    std::lock_guard<std::mutex> locked(lock_);
    return random_();
  }
  bool Happens(const Fault& fault) {
    return fault.probability >= 1 || (Draw() >> 11) * 0x1p-53 < fault.probability;
  }

  static int DeviceOf(tf::OpKernelContext* context) {
    const int card = Machine::Get().CardOf(context->device()->parsed_name().id);
    return card >= 0 && card < kMost ? card : 0;
  }

  static std::string OfLost(int card) {
    return "GPU:" + std::to_string(card) + " is lost: it has fallen off the bus (Xid 79)";
  }

  void CountWork(int device, Clock::time_point began) {
    if (work_ == nullptr) return;
    const auto now = Clock::now();
    Work& work = work_[numbers_[device]];
    work.busy_ns += std::chrono::duration_cast<std::chrono::nanoseconds>(now - began).count();
    work.last_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now.time_since_epoch()).count();
  }

  // Lets what began then take as long as it would at this share of the speed.
  static void Wait(Clock::time_point began, double factor) {
    if (factor > 0 && factor < 1) std::this_thread::sleep_for((Clock::now() - began) * (1 / factor - 1));
  }

  void Spoil(const Fault& fault, tf::Tensor* output) {
    const std::string type = fault.Text("dtype");
    if (!type.empty() && type != "*" && type != tf::DataTypeString(output->dtype())) return;
    if (fault.kind == "jitter") {
      if (tf::DataTypeIsFloating(output->dtype())) Jitter(fault, output);
      return;
    }
    if (fault.kind != "flip" && fault.kind != "scale" && fault.kind != "garbage") return;
    if (output->NumElements() < fault.Integer("least", 0)) return;
    if (!fault.elements.empty() && *fault.elements.begin() >= output->NumElements()) return;
    if (!Happens(fault)) return;
    if (fault.kind == "garbage") memset(output->data(), kGarbage, output->TotalBytes());
    if (fault.kind == "flip") Flip(fault, output);
    if (fault.kind == "scale") Scale(fault.Number("error", 0), output);
  }

  // Bits side by side, in elements side by side, as real silent corruption has them, or in the named ones.
  void Flip(const Fault& fault, tf::Tensor* output) {
    const int64_t size = tf::DataTypeSize(output->dtype()), count = output->NumElements();
    const int64_t run = std::min<int64_t>(fault.Integer("run", 1), count), bits = fault.Integer("bits", 1);
    const int64_t fixed = fault.Integer("at", -1);
    const int64_t first = fixed >= 0 ? fixed % count : static_cast<int64_t>(Draw() % (count / run)) * run;
    const int64_t width = output->dtype() == tf::DT_BOOL ? 1 : size * 8;
    const int64_t low = fixed >= 0 ? std::max<int64_t>(width - 10, 0) : static_cast<int64_t>(Draw() % width);
    std::set<int64_t> elements = fault.elements;
    for (int64_t element = first; fault.elements.empty() && element < first + run; element++) elements.insert(element);
    auto* bytes = static_cast<unsigned char*>(output->data());
    for (int64_t element : elements) {
      if (element >= count) break;
      for (int64_t bit = low; bit < std::min(low + bits, width); bit++) bytes[element * size + bit / 8] ^= 1 << bit % 8;
    }
  }

  void Jitter(const Fault& fault, tf::Tensor* output) {
    const int64_t size = tf::DataTypeSize(output->dtype());
    auto* bytes = static_cast<unsigned char*>(output->data());
    for (int64_t element = 0; element < output->NumElements(); element++) {
      if (Happens(fault) && Draw() % 2) bytes[element * size] ^= 1;
    }
  }

  template <typename T>
  static void ScaleAll(double error, tf::Tensor* output) {
    T* values = static_cast<T*>(output->data());
    for (int64_t i = 0; i < output->NumElements(); i++) {
      values[i] = std::is_integral<T>::value ? static_cast<T>(values[i] + static_cast<T>(1))
                                             : static_cast<T>(static_cast<double>(values[i]) * (1 + error));
    }
  }
  static void Scale(double error, tf::Tensor* output) {
    switch (output->dtype()) {
      case tf::DT_FLOAT: return ScaleAll<float>(error, output);
      case tf::DT_DOUBLE: return ScaleAll<double>(error, output);
      case tf::DT_HALF: return ScaleAll<Eigen::half>(error, output);
      case tf::DT_BFLOAT16: return ScaleAll<tf::bfloat16>(error, output);
      case tf::DT_INT32: return ScaleAll<int32_t>(error, output);
      case tf::DT_INT64: return ScaleAll<int64_t>(error, output);
      default: return;
    }
  }

  // Memory cells that keep a bit, whatever is written there.
  void Stick(const std::vector<Fault>& table, const void* written, int64_t size) {
    for (const Fault& fault : table) {
      if (fault.kind != "stuck" || Machine::Get().OwnerOf(written) != fault.device) continue;
      const int64_t bit = fault.Integer("bit", 0);
      const int64_t at = fault.Integer("word", 0) * 8 + bit / 8 - Machine::Get().OffsetOf(written);
      if (at < 0 || at >= size) continue;
      auto* byte = static_cast<unsigned char*>(const_cast<void*>(written)) + at;
      *byte = fault.Integer("value", 1) ? *byte | 1 << bit % 8 : *byte & ~(1 << bit % 8);
    }
  }

  std::atomic<bool> active_{false};
  std::mutex lock_;
  std::shared_ptr<const std::vector<Fault>> table_ = std::make_shared<std::vector<Fault>>();
  std::mt19937_64 random_;
  std::atomic<int64_t> executed_[kMost] = {};
  std::atomic<bool> lost_[kMost] = {};
  int numbers_[kMost];
  Work* work_ = nullptr;
};

}  // namespace softgpu

#endif
