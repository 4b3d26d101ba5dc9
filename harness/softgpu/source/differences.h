// Where software GPUs differ from GPUs, by name of the op: for the page that lists them.
#ifndef HARNESS_SOFTGPU_DIFFERENCES_H_
#define HARNESS_SOFTGPU_DIFFERENCES_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "registry.h"
#include "tensorflow/core/framework/op_def_util.h"

namespace softgpu {

// The types of the attributes of a node, by their names.
using Types = std::map<std::string, tf::DataType>;

// All types that a GPU kernel is registered for.
inline std::vector<Types> Combinations(const tf::KernelDef& kernel, const tf::OpDef& op) {
  std::vector<Types> combinations{{}};
  for (const auto& constraint : kernel.constraint()) {
    // TensorFlow cannot run such an op on any device: TopK and TileGrad of 2.21.
    if (tf::FindAttr(constraint.name(), op) == nullptr) return {};
  }
  for (const auto& attribute : op.attr()) {
    if (attribute.type() != "type") continue;
    const auto& known = attribute.allowed_values().list().type();
    std::set<int> types(known.begin(), known.end());
    for (const auto& constraint : kernel.constraint()) {
      if (constraint.name() != attribute.name()) continue;
      const auto& registered = constraint.allowed_values().list().type();
      std::set<int> both;
      for (int type : registered) {
        if (types.empty() || types.count(type) > 0) both.insert(type);
      }
      types = both;
      if (types.empty()) return {};  // registered for types that the op cannot have
    }
    if (types.empty()) types.insert(tf::DT_FLOAT);  // any
    std::vector<Types> longer;
    for (const Types& each : combinations) {
      for (int type : types) {
        longer.push_back(each);
        longer.back()[attribute.name()] = static_cast<tf::DataType>(type);
      }
    }
    combinations = std::move(longer);
  }
  return combinations;
}

inline bool HasCpuKernel(const tf::OpDef& op, const Types& types, bool wide) {
  tf::NodeDef node;
  node.set_op(op.name());
  for (const auto& [name, type] : types) (*node.mutable_attr())[name].set_type(type);
  tf::AddDefaultsToNodeDef(op, &node);
  if (wide) Widen(&node);
  const tf::KernelDef* found = nullptr;
  return tf::FindKernelDef(tf::DeviceType(tf::DEVICE_CPU), node, &found, nullptr).ok();
}

// The types of an op for which its GPU kernel has no CPU kernel to run.
inline std::set<std::string> MissingTypes(const tf::OpDef& op, const std::vector<Types>& all, bool wide) {
  std::set<std::pair<std::string, tf::DataType>> possible;
  std::vector<Types> missing;
  for (const Types& types : all) {
    if (HasCpuKernel(op, types, wide)) {
      possible.insert(types.begin(), types.end());
    } else {
      missing.push_back(types);
    }
  }
  std::set<std::string> names;
  for (const Types& types : missing) {
    for (const auto& type : types) {
      if (possible.count(type) == 0) names.insert(tf::DataTypeString(type.second));
    }
  }
  if (names.empty() && !missing.empty()) names.insert("some combinations of types");
  return names;
}

// Lines of a kind and an op. "missing": it cannot run at all; "type", with the types for which it cannot; "own": the code
// is that of this library; "kept": that of TensorFlow.
inline std::string Differences() {
  std::set<std::string> lines;
  std::map<std::string, std::vector<Types>> emulated;
  for (const tf::KernelDef& kernel : Kernels::Get().on_gpu) {
    const std::string& op = kernel.op();
    const Maker maker = MakerFor(op, Kernels::Get().on_cpu.count(op) > 0);
    const bool twin = maker == static_cast<Maker>(Make<TwinKernel>) || maker == static_cast<Maker>(Make<LayoutTwin>) ||
                      maker == static_cast<Maker>(MakeWide) || maker == static_cast<Maker>(Make<CollectiveTwin>);
    if (maker == nullptr) {
      lines.insert("kept " + op);
    } else if (maker == static_cast<Maker>(Make<Missing>)) {
      lines.insert("missing " + op);
    } else if (!twin) {
      lines.insert("own " + op);
    } else if (kernel.label().empty()) {
      const std::vector<Types> types = Combinations(kernel, tf::OpRegistry::Global()->LookUp(op)->op_def);
      emulated[op].insert(emulated[op].end(), types.begin(), types.end());
    }
  }
  for (const auto& [op, types] : emulated) {
    const tf::OpDef& definition = tf::OpRegistry::Global()->LookUp(op)->op_def;
    const auto& inputs = definition.input_arg();
    const auto is_reference = [](const tf::OpDef::ArgDef& input) { return input.is_ref(); };
    if (std::any_of(inputs.begin(), inputs.end(), is_reference)) continue;  // TensorFlow 1's, which are refused
    const bool wide = HasImageLayout(op) || NeedsFloat(op);
    for (const std::string& type : MissingTypes(definition, types, wide)) lines.insert("type " + op + " " + type);
  }
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace softgpu

#endif
