#include "levin/models/exported/exported_program.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <utility>

#include "levin/core/count_of.h"
#include "levin/core/error.h"
#include "levin/models/exported/bound_graph.h"
#include "levin/models/exported/check_inputs.h"
#include "levin/models/exported/read_archive.h"
#include "levin/models/exported/run_graph.h"
#include "levin/models/exported/weight_uses.h"

namespace levin {

namespace {

using exported::InputSpec;
using exported::OutputSpec;
using torch::nn::Module;

// A submodule that holds parameters, buffers and a mode, and computes nothing by itself: what is computed with its
// weight is in the graph.
class Part : public Module, public KnowsWeightUse {
 public:
  Part() : Module("Exported") {}
  [[nodiscard]] std::optional<Known> weight_use() const override { return known_; }
  /// An embedding that is also something else under another name is an embedding.
  void set_weight_use(Known known) {
    if (!known_ || known_->use != WeightUse::embedding) known_ = known;
  }

 private:
  std::optional<Known> known_ = {};
};

class Tree {
 public:
  explicit Tree(Module& root) : modules_{{"", &root}} {}

  /// The submodule of that name, made with those around it.
  Module& at(const std::string& name) {
    if (const auto found = modules_.find(name); found != modules_.end()) return *found->second;
    const size_t dot = name.rfind('.');
    Module& outer = at(dot == std::string::npos ? "" : name.substr(0, dot));
    const auto part =
        outer.register_module(name.substr(dot == std::string::npos ? 0 : dot + 1), std::make_shared<Part>());
    return *(modules_[name] = part.get());
  }

  /// The innermost of these modules that a C++ module can have ("layers.slice(0, 2).0" is none).
  Module& innermost(const std::vector<std::string>& names) {
    for (auto name = names.rbegin(); name != names.rend(); ++name) {
      const bool is_plain = name->find("..") == std::string::npos && !name->starts_with('.') && !name->ends_with('.') &&
                            std::all_of(name->begin(), name->end(),
                                        [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; });
      if (is_plain) return at(*name);
    }
    return at("");
  }

 private:
  std::map<std::string, Module*> modules_;
};

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
  c10::Device device = c10::Device(c10::kCPU);

  void collect_modes(const exported::BoundGraph& of, Tree& tree) {
    for (const exported::BoundCall& call : of.calls) {
      if (call.mode || call.counts_batches) modes[&call] = &tree.innermost(call.modules);
      if (call.graph) collect_modes(*call.graph, tree);
    }
  }

  void take_state(exported::Contents contents, Tree& tree) {
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
      const bool is_registered =
          input.kind == InputSpec::Kind::parameter || (input.kind == InputSpec::Kind::buffer && input.is_persistent);
      if (!is_registered) {
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

  void add(Tree& tree, const InputSpec& input, const exported::StoredTensor& stored) const {
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

  /// Constants follow the module's weights, or the inputs if there are none.
  void follow(const std::vector<at::Tensor>& inputs) {
    const auto first =
        std::find_if(state.begin(), state.end(), [](const at::Tensor& tensor) { return tensor.defined(); });
    bool has_weights = false;
    for (size_t k = 0; k < state.size() && !has_weights; ++k) {
      has_weights = state[k].defined() && std::find(movable.begin(), movable.end(), k) == movable.end();
      if (has_weights) device = state[k].device();
    }
    if (!has_weights && !inputs.empty()) device = inputs[0].device();
    if (first == state.end()) return;
    for (const size_t k : movable) {
      if (state[k].device() != device) state[k] = state[k].to(device);
    }
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
  Tree tree(*this);
  parts.take_state(std::move(contents), tree);
  const std::map<std::string, std::string> first_names(parts.tied.begin(), parts.tied.end());
  for (const auto& [name, known] : uses) {
    const auto first = first_names.find(name);  // a tied weight has one part, and several names in the graph
    const std::string& own = first == first_names.end() ? name : first->second;
    if (auto* part = dynamic_cast<Part*>(&tree.at(split(own).first))) part->set_weight_use(known);
  }
  parts.collect_modes(parts.graph, tree);
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
  parts.follow(inputs);
  std::vector<c10::IValue> values;
  size_t next = 0;
  for (size_t k = 0; k < parts.program.inputs.size(); ++k) {
    const auto kind = parts.program.inputs[k].kind;
    if (kind == InputSpec::Kind::fixed) {
      values.push_back(parts.program.graph.inputs[k].constant);
    } else {
      values.emplace_back(kind == InputSpec::Kind::user ? inputs[next++] : parts.state[k]);
    }
  }
  const auto is_training = [&](const exported::BoundCall& call) {
    const auto found = parts.modes.find(&call);
    return found == parts.modes.end() ? this->is_training() : found->second->is_training();
  };
  const auto outputs = exported::run_graph(parts.graph, std::move(values), {parts.device, is_training});
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
