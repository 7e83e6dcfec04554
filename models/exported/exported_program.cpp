#include "levin/models/exported/exported_program.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "levin/core/count_of.h"
#include "levin/core/error.h"
#include "levin/core/module_call.h"
#include "levin/models/exported/bound_graph.h"
#include "levin/models/exported/check_inputs.h"
#include "levin/models/exported/part_tree.h"
#include "levin/models/exported/read_archive.h"
#include "levin/models/exported/regions.h"
#include "levin/models/exported/run_graph.h"
#include "levin/models/exported/run_regions.h"
#include "levin/models/exported/weight_uses.h"

namespace levin {

namespace {

using exported::InputSpec;
using exported::OutputSpec;
using torch::nn::Module;

// The innermost of the modules around a call that a C++ module can be ("layers.slice(0, 2).0" is none).
const Module& innermost(const exported::BoundCall& call, exported::PartTree& tree) {
  for (auto module = call.modules.rbegin(); module != call.modules.rend(); ++module) {
    if (exported::is_module_name(module->name)) return tree.at(module->name);
  }
  return tree.at("");
}

bool is_registered(const InputSpec& input) {
  return input.kind == InputSpec::Kind::parameter || (input.kind == InputSpec::Kind::buffer && input.is_persistent);
}

// Names of the modules that hold what is saved.
std::vector<std::string> holding_modules(const std::vector<InputSpec>& inputs) {
  std::vector<std::string> names;
  for (const InputSpec& input : inputs) {
    if (is_registered(input)) names.push_back(exported::parent_name(input.name));
  }
  return names;
}

std::pair<std::string, std::string> split(const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return {"", name};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

at::Tensor as_tensor(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor();
  if (value.isScalar())
    return at::scalar_tensor(value.toScalar(), at::TensorOptions(value.isDouble() ? at::kDouble
                                                                 : value.isBool() ? at::kBool
                                                                                  : at::kLong));
  return {};
}

std::vector<std::string> notes_about(const exported::ModeNotes& modes) {
  std::vector<std::string> notes;
  if (modes.is_eval) {
    notes.push_back(
        "it was exported in evaluation mode; training switches on " +
        count_of(static_cast<int64_t>(modes.switches), "operator") +
        " (dropout, batch norm), but the dropout of attention and whatever else the model does in training only is "
        "not in the file: export model.train() to have it");
  }
  if (modes.fixed_norms > 0) {
    notes.push_back(count_of(static_cast<int64_t>(modes.fixed_norms), "batch norm") +
                    " of it can only evaluate: export model.train() without run_decompositions() to train them");
  }
  return notes;
}

}  // namespace

struct ExportedProgram::Parts {
  std::string path;
  exported::Program program;  // without its nodes
  exported::BoundGraph graph;
  std::vector<at::Tensor> state;  // of each input that is not the user's
  std::vector<size_t> movable;    // state that is not registered: it follows the module's device
  std::map<const exported::BoundCall*, const Module*> modes;
  std::vector<std::string> input_names, output_names, notes;
  std::vector<std::pair<std::string, std::string>> tied;
  std::unique_ptr<exported::RegionRuns> regions;
  c10::Device device = c10::Device(c10::kCPU);
  std::mutex placing;  // guards `device` and the state that is movable

  void collect_modes(const exported::BoundGraph& of, exported::PartTree& tree) {
    for (const exported::BoundCall& call : of.calls) {
      if (call.mode || call.counts_batches) modes[&call] = &innermost(call, tree);
      if (call.graph) collect_modes(*call.graph, tree);
    }
  }

  void take_state(exported::Contents contents, exported::PartTree& tree) {
    std::map<std::string, exported::StoredTensor> stored;
    for (auto* list : {&contents.weights, &contents.constants}) {
      for (auto& each : *list) stored.emplace(each.name, std::move(each));
    }
    std::map<const at::TensorImpl*, std::string> registered;
    for (size_t k = 0; k < program.inputs.size(); ++k) {
      const InputSpec& input = program.inputs[k];
      state.emplace_back();
      if (input.kind == InputSpec::Kind::user || input.kind == InputSpec::Kind::fixed) continue;
      const auto found = stored.find(input.name);
      if (found == stored.end())
        throw Error(path + " has no tensor \"" + cut_text(input.name) + "\", which its program uses. It is damaged.");
      state.back() = found->second.tensor;
      if (!is_registered(input)) {
        movable.push_back(k);
        continue;
      }
      const auto [first, is_new] = registered.emplace(state.back().unsafeGetTensorImpl(), input.name);
      if (!is_new) {
        tied.emplace_back(input.name, first->second);
        continue;
      }
      add(tree, input, found->second);
    }
  }

  void add(exported::PartTree& tree, const InputSpec& input, const exported::StoredTensor& stored) const {
    const auto [module, name] = split(input.name);
    try {
      if (input.kind == InputSpec::Kind::buffer) {
        tree.at(module).register_buffer(name, stored.tensor);
      } else {
        tree.at(module).register_parameter(name, stored.tensor, stored.requires_grad);
      }
    } catch (const c10::Error& error) {
      throw Error(path + " has the name \"" + cut_text(input.name) +
                  "\" for two things: " + cut_text(error.what_without_backtrace()));
    }
  }

  /// What regions need of the tensors that are not the user's, by value.
  [[nodiscard]] std::map<size_t, exported::HeldTensor> held_tensors() const {
    std::map<size_t, exported::HeldTensor> held;
    const std::map<std::string, std::string> first_names(tied.begin(), tied.end());
    for (size_t k = 0; k < program.inputs.size(); ++k) {
      const InputSpec& input = program.inputs[k];
      if (input.kind == InputSpec::Kind::user || input.kind == InputSpec::Kind::fixed) continue;
      const auto first = first_names.find(input.name);
      held[program.graph.inputs[k].value] = {&state[k], first == first_names.end() ? input.name : first->second,
                                             is_registered(input)};
    }
    return held;
  }

  void make_regions(std::vector<exported::Region> found, const exported::PartTree& tree) {
    auto list = exported::with_modules(std::move(found), [&](const std::string& name) { return tree.find(name); });
    regions = std::make_unique<exported::RegionRuns>(graph, std::move(list), held_tensors());
  }

  /// Constants follow the module's weights, or the inputs if there are none, or if submodules may have devices of their
  /// own.
  void follow(const std::vector<at::Tensor>& inputs) {
    bool has_weights = CallActions::any() && !inputs.empty();
    c10::Device found = has_weights || !inputs.empty() ? inputs[0].device() : device;
    for (size_t k = 0; k < state.size() && !has_weights; ++k) {
      has_weights = state[k].defined() && std::find(movable.begin(), movable.end(), k) == movable.end();
      if (has_weights) found = state[k].device();
    }
    if (device != found) device = found;
    for (const size_t k : movable) {
      if (state[k].device() != device) state[k] = state[k].to(device);
    }
  }

  /// Where the graph runs, and a value for each of its inputs. The first of several threads that predict may move
  /// constants, which the others read.
  std::pair<c10::Device, std::vector<c10::IValue>> placed(const std::vector<at::Tensor>& inputs) {
    const std::lock_guard lock(placing);
    follow(inputs);
    std::vector<c10::IValue> values;
    size_t next = 0;
    for (size_t k = 0; k < program.inputs.size(); ++k) {
      const auto kind = program.inputs[k].kind;
      if (kind == InputSpec::Kind::fixed) {
        values.push_back(program.graph.inputs[k].constant);
      } else {
        values.emplace_back(kind == InputSpec::Kind::user ? inputs[next++] : state[k]);
      }
    }
    return {device, std::move(values)};
  }

  /// Values that the graph returns for buffers and inputs that Python changes in place.
  void copy_back(const std::vector<c10::IValue>& outputs, const std::vector<at::Tensor>& inputs,
                 bool is_training) const {
    const at::NoGradGuard no_grad;
    for (size_t k = 0; k < outputs.size(); ++k) {
      const OutputSpec& spec = program.outputs[k];
      if (spec.kind == OutputSpec::Kind::user) continue;
      if (!is_training && spec.name.ends_with("num_batches_tracked")) continue;
      size_t user = 0;
      for (size_t input = 0; input < program.inputs.size(); ++input) {
        const bool is_user = program.inputs[input].kind == InputSpec::Kind::user;
        if (is_user == (spec.kind == OutputSpec::Kind::input) && program.inputs[input].name == spec.name) {
          at::Tensor target = is_user ? inputs[user] : state[input];
          const at::Tensor value = outputs[k].toTensor();
          if (!value.is_same(target)) target.copy_(value);
          break;
        }
        user += static_cast<size_t>(is_user);
      }
    }
  }
};

ExportedProgram::ExportedProgram(const std::string& path, const ExportedProgramOptions& options)
    : Module("ExportedProgram"), parts_(std::make_unique<Parts>()) {
  exported::Contents contents = exported::read_archive(path);
  Parts& parts = *parts_;
  parts.path = path;
  exported::ModeNotes modes;
  const exported::BindOptions bind{contents.exported_on, options.operator_namespaces, path};
  parts.graph = exported::bind_graph(contents.program.graph, bind, modes);
  const exported::Graph& graph = contents.program.graph;
  for (size_t k = 0; k < contents.program.inputs.size(); ++k) {
    const InputSpec& input = contents.program.inputs[k];
    if (input.kind != InputSpec::Kind::user) continue;
    parts.input_names.push_back(input.name);
    if (graph.types[graph.inputs[k].value] != exported::ValueType::tensor) {
      throw Error(path + ": input \"" + cut_text(input.name) +
                  "\" is a number; export the model with tensors as inputs.");
    }
  }
  for (size_t k = 0; k < graph.outputs.size(); ++k) {
    const exported::Argument& output = graph.outputs[k];
    if (contents.program.outputs[k].kind != OutputSpec::Kind::user || output.kind == exported::Argument::Kind::list)
      continue;
    parts.output_names.push_back(output.kind == exported::Argument::Kind::value ? graph.values[output.value]
                                                                                : "constant");
  }
  parts.notes = notes_about(modes);
  const auto uses = exported::weight_uses(contents.program);
  parts.program = std::move(contents.program);
  parts.program.graph.nodes.clear();
  auto regions = exported::regions_of(parts.graph);
  exported::PartTree tree(*this, holding_modules(parts.program.inputs), exported::region_modules(regions));
  parts.take_state(std::move(contents), tree);
  const std::map<std::string, std::string> first_names(parts.tied.begin(), parts.tied.end());
  for (const auto& [name, known] : uses) {
    const auto first = first_names.find(name);  // a tied weight has one part, and several names in the graph
    const std::string& own = first == first_names.end() ? name : first->second;
    tree.set_weight_use(split(own).first, known);
  }
  parts.collect_modes(parts.graph, tree);
  parts.make_regions(std::move(regions), tree);
}

ExportedProgram::~ExportedProgram() = default;

const std::vector<std::string>& ExportedProgram::input_names() const {
  return parts_->input_names;
}
const std::vector<std::string>& ExportedProgram::output_names() const {
  return parts_->output_names;
}
const std::vector<std::string>& ExportedProgram::notes() const {
  return parts_->notes;
}
const std::vector<std::pair<std::string, std::string>>& ExportedProgram::tied_names() const {
  return parts_->tied;
}

std::vector<at::Tensor> ExportedProgram::forward(const std::vector<at::Tensor>& inputs) {
  Parts& parts = *parts_;
  if (inputs.size() != parts.input_names.size()) {
    throw Error(parts.path + " takes " + count_of(static_cast<int64_t>(parts.input_names.size()), "input") + " (" +
                cut_text(join(parts.input_names), 400) + "), and got " + std::to_string(inputs.size()) + ".");
  }
  exported::check_inputs(parts.program.inputs, parts.program.ranges, inputs, parts.path);
  auto [device, values] = parts.placed(inputs);
  const auto is_training = [this](const exported::BoundCall& call) {  // may be kept until backward
    const auto found = parts_->modes.find(&call);
    return found == parts_->modes.end() ? this->is_training() : found->second->is_training();
  };
  const exported::RunOptions run{device, is_training};
  const auto outputs = CallActions::any() ? parts.regions->run(std::move(values), run)
                                          : exported::run_graph(parts.graph, std::move(values), run);
  parts.copy_back(outputs, inputs, this->is_training());
  std::vector<at::Tensor> results;
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (parts.program.outputs[k].kind != OutputSpec::Kind::user || outputs[k].isTensorList()) continue;
    results.push_back(as_tensor(outputs[k]));
  }
  return results;
}

void ExportedProgram::to(torch::Dtype dtype, bool non_blocking) {
  Module::to(dtype, non_blocking);
  for (const size_t k : parts_->movable) {
    const bool is_buffer = parts_->program.inputs[k].kind == InputSpec::Kind::buffer;
    if (is_buffer && parts_->state[k].is_floating_point()) parts_->state[k] = parts_->state[k].to(dtype);
  }
}

void ExportedProgram::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  Module::to(device, dtype, non_blocking);
  to(dtype, non_blocking);
}

}  // namespace levin
