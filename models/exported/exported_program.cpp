#include "levin/models/exported/exported_program.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "levin/core/module_call.h"
#include "levin/core/options/error.h"
#include "levin/core/process/log.h"
#include "levin/core/tensors.h"
#include "levin/libtorch/vector_math.h"
#include "levin/models/exported/bound_graph.h"
#include "levin/models/exported/part_tree.h"
#include "levin/models/exported/read_archive.h"
#include "levin/models/exported/regions.h"
#include "levin/models/exported/run_graph.h"

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

// The command that exports a model with the inputs of this program: 'float32[2, 3, 224, 224]' …
std::string export_command(const exported::Program& program, const std::string& path) {
  std::string inputs;
  for (const InputSpec& input : program.inputs) {
    if (input.kind != InputSpec::Kind::user) continue;
    std::string sizes;
    for (const int64_t size : input.shape.sizes) {
      sizes += (sizes.empty() ? "" : ", ") + std::to_string(size < 0 ? 2 : size);
    }
    inputs += " '" + dtype_name(input.shape.dtype) + "[" + sizes + "]'";
  }
  return "python3 tools/export_model.py MODULE:NAME --inputs" + inputs + " --output " + path;
}

std::vector<std::string> notes_about(const exported::ModeNotes& modes, bool has_evaluation) {
  std::vector<std::string> notes;
  if (!has_evaluation && !modes.is_eval && modes.may_differ.empty()) {
    notes.push_back(
        "it holds one graph, so evaluation is training with dropout and batch norm switched off; anything else "
        "that the model does in one mode only is wrong in the other: tools/export_model.py writes a graph for each");
  }
  if (modes.is_eval) {
    notes.push_back("it was exported in evaluation mode; training switches on " +
                    count_of(static_cast<int64_t>(modes.switches), "operator") +
                    " (dropout, batch norm), but the dropout of attention and anything else that the model does in "
                    "training only is "
                    "not in the file: export model.train() to have it");
  }
  if (modes.fixed_norms > 0) {
    notes.push_back(count_of(static_cast<int64_t>(modes.fixed_norms), "batch norm") +
                    " of it can only evaluate: export model.train() without run_decompositions() to train them");
  }
  return notes;
}

// The floating type of the program's first floating parameter, or of its first floating input.
c10::ScalarType exported_type(const exported::Contents& contents) {
  for (const exported::StoredTensor& stored : contents.weights) {
    if (stored.requires_grad && stored.tensor.is_floating_point()) return stored.tensor.scalar_type();
  }
  for (const InputSpec& input : contents.program.inputs) {
    if (input.kind == InputSpec::Kind::user && c10::isFloatingType(input.shape.dtype)) return input.shape.dtype;
  }
  return c10::kFloat;
}

// "bf16-true" of bfloat16.
std::string precision_of(c10::ScalarType type) {
  if (type == c10::kBFloat16) return "bf16-true";
  if (type == c10::kHalf) return "16-true";
  return type == c10::kDouble ? "64-true" : "32-true";
}

}  // namespace

struct ExportedProgram::Parts {
  // A tensor that belongs to the program. Registered ones are the module's parameters and buffers; others follow the
  // module's device.
  struct Held {
    std::string name;
    at::Tensor tensor;
    InputSpec::Kind kind;
    bool is_registered;
  };
  // A graph that runs.
  struct Recorded {
    exported::Program program = {};  // without its nodes
    exported::BoundGraph graph = {};
    std::vector<Held*> tensors = {};  // of each input that is not the user's
    std::unique_ptr<exported::RegionRuns> regions = {};
  };

  std::string path;
  Recorded training;
  std::unique_ptr<Recorded> evaluation;  // null: the training graph is evaluation's too
  std::deque<Held> held;
  std::map<std::string, Held*> held_by_name;  // parameters and buffers, under each of their names
  std::map<const exported::BoundCall*, const Module*> modes;
  std::vector<std::string> input_names, output_names, notes, typed;
  std::string refused_evaluation;  // why the file does not determine what evaluation computes
  std::vector<std::pair<std::string, std::string>> tied;
  c10::ScalarType exported_type = c10::kFloat;
  c10::Device device = c10::Device(c10::kCPU);
  std::mutex placing;           // guards `device` and the tensors that are not registered
  bool has_evaluation = false;  // or the graph of training is a guess at it
  std::vector<std::pair<const exported::BoundCall*, const Module*>> differing;  // of training, perhaps, alone
  std::atomic<bool> has_warned = false;

  Recorded& recorded(bool is_training) { return is_training || !evaluation ? training : *evaluation; }

  void collect_modes(const exported::BoundGraph& of, exported::PartTree& tree) {
    for (const exported::BoundCall& call : of.calls) {
      if (call.mode || call.counts_batches) modes[&call] = &innermost(call, tree);
      if (call.may_differ) differing.emplace_back(&call, &innermost(call, tree));
      if (call.graph) collect_modes(*call.graph, tree);
    }
  }

  /// Takes the tensors of a program's inputs: a tensor that is held already under the same name, or one of `stored`.
  void take_state(Recorded& of, std::vector<exported::StoredTensor> list, exported::PartTree& tree) {
    std::map<std::string, exported::StoredTensor> stored;
    for (auto& each : list) stored.emplace(each.name, std::move(each));
    std::map<const at::TensorImpl*, std::string> registered;
    for (const InputSpec& input : of.program.inputs) {
      of.tensors.push_back(nullptr);
      if (input.kind == InputSpec::Kind::user || input.kind == InputSpec::Kind::fixed) continue;
      const bool is_constant = input.kind == InputSpec::Kind::constant;
      const auto known = held_by_name.find(input.name);
      if (!is_constant && known != held_by_name.end()) {
        of.tensors.back() = known->second;
        continue;
      }
      const auto found = stored.find(input.name);
      if (found == stored.end())
        throw Error(path + " has no tensor \"" + cut_text(input.name) + "\", which its program uses. It is damaged.");
      held.push_back({input.name, found->second.tensor, input.kind, is_registered(input)});
      of.tensors.back() = &held.back();
      if (!is_constant) held_by_name[input.name] = &held.back();
      if (!is_registered(input)) continue;
      const auto [first, is_new] = registered.emplace(held.back().tensor.unsafeGetTensorImpl(), input.name);
      if (is_new) {
        add(tree, input, found->second);
      } else {
        tied.emplace_back(input.name, first->second);
      }
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
  [[nodiscard]] std::map<size_t, exported::HeldTensor> held_tensors(const Recorded& of) const {
    std::map<size_t, exported::HeldTensor> tensors;
    const std::map<std::string, std::string> first_names(tied.begin(), tied.end());
    for (size_t k = 0; k < of.tensors.size(); ++k) {
      if (of.tensors[k] == nullptr) continue;
      const Held& each = *of.tensors[k];
      const auto first = first_names.find(each.name);
      tensors[of.program.graph.inputs[k].value] = {&each.tensor, first == first_names.end() ? each.name : first->second,
                                                   each.is_registered};
    }
    return tensors;
  }

  void make_regions(Recorded& of, std::vector<exported::Region> found, const exported::PartTree& tree) const {
    auto list = exported::with_modules(std::move(found), [&](const std::string& name) { return tree.find(name); });
    of.regions = std::make_unique<exported::RegionRuns>(of.graph, std::move(list), held_tensors(of));
  }

  /// Constants follow the module's weights, or the inputs if there are none, or if submodules may have devices of their
  /// own.
  void follow(const std::vector<at::Tensor>& inputs) {
    c10::Device found = inputs.empty() ? device : inputs[0].device();
    const auto weight = std::find_if(held.begin(), held.end(), [](const Held& each) { return each.is_registered; });
    if (weight != held.end() && (!CallActions::any() || inputs.empty())) found = weight->tensor.device();
    if (device != found) device = found;
    for (Held& each : held) {
      if (!each.is_registered && each.tensor.device() != device) each.tensor = each.tensor.to(device);
    }
  }

  /// Where the graph runs, and a value for each of its inputs. The first of several threads that predict may move
  /// constants, which the others read.
  std::pair<c10::Device, std::vector<c10::IValue>> placed(const Recorded& of, const std::vector<at::Tensor>& inputs) {
    const std::lock_guard lock(placing);
    follow(inputs);
    std::vector<c10::IValue> values;
    size_t next = 0;
    for (size_t k = 0; k < of.program.inputs.size(); ++k) {
      const auto kind = of.program.inputs[k].kind;
      if (kind == InputSpec::Kind::fixed) {
        values.push_back(of.program.graph.inputs[k].constant);
      } else {
        values.emplace_back(kind == InputSpec::Kind::user ? inputs[next++] : of.tensors[k]->tensor);
      }
    }
    return {device, std::move(values)};
  }

  /// Values that the graph returns for buffers and inputs that Python changes in place.
  static void copy_back(const Recorded& of, const std::vector<c10::IValue>& outputs,
                        const std::vector<at::Tensor>& inputs, bool leaves_counters) {
    const at::NoGradGuard no_grad;
    for (size_t k = 0; k < outputs.size(); ++k) {
      const OutputSpec& spec = of.program.outputs[k];
      if (spec.kind == OutputSpec::Kind::user) continue;
      if (leaves_counters && spec.name.ends_with("num_batches_tracked")) continue;
      size_t user = 0;
      for (size_t input = 0; input < of.program.inputs.size(); ++input) {
        const bool is_user = of.program.inputs[input].kind == InputSpec::Kind::user;
        if (is_user == (spec.kind == OutputSpec::Kind::input) && of.program.inputs[input].name == spec.name) {
          at::Tensor target = is_user ? inputs[user] : of.tensors[input]->tensor;
          const at::Tensor value = outputs[k].toTensor();
          if (!value.is_same(target)) target.copy_(value);
          break;
        }
        user += static_cast<size_t>(is_user);
      }
    }
  }

  void bind(Recorded& of, exported::Program program, exported::BindOptions options, exported::ModeNotes& modes_found) {
    options.exported_type = exported_type;
    of.graph = exported::bind_graph(program, options, modes_found);
    of.program = std::move(program);
    of.program.graph.nodes.clear();
  }

  [[nodiscard]] std::vector<std::string> user_inputs(const Recorded& of) const {
    std::vector<std::string> names;
    const exported::Graph& graph = of.program.graph;
    for (size_t k = 0; k < of.program.inputs.size(); ++k) {
      const InputSpec& input = of.program.inputs[k];
      if (input.kind != InputSpec::Kind::user) continue;
      names.push_back(input.name);
      if (graph.types[graph.inputs[k].value] != exported::ValueType::tensor) {
        throw Error(path + ": input \"" + cut_text(input.name) +
                    "\" is a number; export the model with tensors as inputs.");
      }
    }
    return names;
  }

  // A submodule that evaluates while the program trains: its operators of the training graph run all the same.
  void warn_of_evaluating_parts() {
    if (has_warned) return;
    std::vector<std::string> found;
    for (const auto& [call, module] : differing) {
      if (!module->is_training()) found.push_back(call->name);
    }
    if (found.empty() || has_warned.exchange(true)) return;
    log::warn("{}: submodules that evaluate while the program trains switch dropout and batch norm alone, and not {}",
              path, join(found, 3));
  }

  /// What an export in another precision may be at fault for; "": it is not, by what the error says.
  [[nodiscard]] std::string about_types(std::string_view error, const std::vector<at::Tensor>& inputs) const {
    c10::ScalarType type = exported_type;
    for (const Held& each : held) {
      if (each.kind == InputSpec::Kind::parameter && each.tensor.is_floating_point()) {
        type = each.tensor.scalar_type();
        break;
      }
    }
    for (const at::Tensor& input : inputs) {
      if (type == exported_type && input.is_floating_point()) type = input.scalar_type();
    }
    const c10::DeviceType on = inputs.empty() ? c10::kCPU : inputs[0].device().type();
    const bool is_mixed = at::autocast::is_autocast_enabled(on);
    if ((type == exported_type && !is_mixed) || error.find("type") == std::string_view::npos) return "";
    if (is_mixed) type = at::autocast::get_autocast_dtype(on);
    const std::string precision = is_mixed ? (type == c10::kHalf ? "16-mixed" : "bf16-mixed") : precision_of(type);
    return "the program was recorded in " + dtype_name(exported_type) + " and computes in " + dtype_name(type) +
           ": types that Python reads at the export (x.dtype, torch.finfo) stay what they were" +
           (typed.empty() ? "" : ", here perhaps in " + join(typed, 3)) +
           ". Record it for this precision: tools/export_model.py --precision " + precision;
  }
};

ExportedProgram::ExportedProgram(const std::string& path, const ExportedProgramOptions& options)
    : Module("ExportedProgram"), parts_(std::make_shared<Parts>()) {
  using enum exported::RecordedMode;
  choose_vector_math();
  exported::Contents contents = exported::read_archive(path);
  Parts& parts = *parts_;
  parts.path = path;
  parts.exported_type = exported_type(contents);
  parts.has_evaluation = contents.has_evaluation;
  exported::ModeNotes modes;
  exported::BindOptions bind{contents.exported_on, options.operator_namespaces, path};
  bind.mode = !contents.has_evaluation ? unknown : contents.evaluation ? training : both;
  const auto uses = exported::weight_uses(contents.program);
  parts.bind(parts.training, std::move(contents.program), bind, modes);
  parts.input_names = parts.user_inputs(parts.training);
  const exported::Program& program = parts.training.program;
  for (size_t k = 0; k < program.graph.outputs.size(); ++k) {
    const exported::Argument& output = program.graph.outputs[k];
    if (program.outputs[k].kind != OutputSpec::Kind::user || output.kind == exported::Argument::Kind::list) continue;
    parts.output_names.push_back(output.kind == exported::Argument::Kind::value ? program.graph.values[output.value]
                                                                                : "constant");
  }
  parts.notes = notes_about(modes, contents.has_evaluation);
  parts.typed = std::move(modes.typed);
  if (!contents.has_evaluation && !modes.may_differ.empty()) {
    parts.refused_evaluation =
        path + " holds one graph, which does not determine what evaluation computes: " + join(modes.may_differ, 3) +
        ". A model usually does so in training only. Export it again, which records both: " +
        export_command(program, path);
  }
  auto regions = exported::regions_of(parts.training.graph);
  auto called = exported::region_modules(regions);
  std::vector<exported::Region> regions_in_evaluation;
  if (contents.evaluation) {
    parts.evaluation = std::make_unique<Parts::Recorded>();
    bind.mode = evaluation;
    exported::ModeNotes ignored;
    parts.bind(*parts.evaluation, std::move(contents.evaluation->program), bind, ignored);
    const size_t inputs = parts.user_inputs(*parts.evaluation).size();
    if (inputs != parts.input_names.size()) {
      throw Error(path + ": its program of evaluation takes " + count_of(static_cast<int64_t>(inputs), "input") +
                  ", and its program of training takes " + std::to_string(parts.input_names.size()) +
                  ". Export both of one model.");
    }
    regions_in_evaluation = exported::regions_of(parts.evaluation->graph);
    const auto more = exported::region_modules(regions_in_evaluation);
    called.insert(called.end(), more.begin(), more.end());
  }
  exported::PartTree tree(*this, holding_modules(program.inputs), called);
  auto stored = std::move(contents.weights);
  std::move(contents.constants.begin(), contents.constants.end(), std::back_inserter(stored));
  parts.take_state(parts.training, std::move(stored), tree);
  const std::map<std::string, std::string> first_names(parts.tied.begin(), parts.tied.end());
  for (const auto& [name, known] : uses) {
    const auto first = first_names.find(name);  // a tied weight has one part, and several names in the graph
    const std::string& own = first == first_names.end() ? name : first->second;
    tree.set_weight_use(split(own).first, known);
  }
  parts.collect_modes(parts.training.graph, tree);
  parts.make_regions(parts.training, std::move(regions), tree);
  if (!parts.evaluation) return;
  parts.take_state(*parts.evaluation, std::move(contents.evaluation->constants), tree);
  parts.collect_modes(parts.evaluation->graph, tree);
  parts.make_regions(*parts.evaluation, std::move(regions_in_evaluation), tree);
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
  const bool trains = this->is_training();
  if (!trains && !parts.refused_evaluation.empty()) throw Error(parts.refused_evaluation);
  if (inputs.size() != parts.input_names.size()) {
    throw Error(parts.path + " takes " + count_of(static_cast<int64_t>(parts.input_names.size()), "input") + " (" +
                cut_text(join(parts.input_names), 400) + "), and got " + std::to_string(inputs.size()) + ".");
  }
  if (trains) parts.warn_of_evaluating_parts();
  const Parts::Recorded& recorded = parts.recorded(trains);
  exported::check_inputs(recorded.program.inputs, recorded.program.ranges, inputs, parts.path);
  auto [device, values] = parts.placed(recorded, inputs);
  const auto is_training = [this](const exported::BoundCall& call) {  // may be kept until backward
    const auto found = parts_->modes.find(&call);
    return found == parts_->modes.end() ? this->is_training() : found->second->is_training();
  };
  const exported::RunOptions run{device, is_training};
  std::vector<c10::IValue> outputs;
  try {
    outputs = CallActions::any() ? recorded.regions->run(std::move(values), run)
                                 : exported::run_graph(recorded.graph, std::move(values), run);
  } catch (c10::Error& error) {
    const std::string about = parts.about_types(error.msg(), inputs);
    if (!about.empty()) error.add_context(about);
    throw;
  } catch (const Error& error) {
    const std::string about = parts.about_types(error.what(), inputs);
    if (about.empty()) throw;
    throw Error(std::string(error.what()) + "\n" + about + ".");
  }
  Parts::copy_back(recorded, outputs, inputs, /*leaves_counters=*/!trains && !parts.has_evaluation);
  std::vector<at::Tensor> results;
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (recorded.program.outputs[k].kind != OutputSpec::Kind::user || outputs[k].isTensorList()) continue;
    results.push_back(as_tensor(outputs[k]));
  }
  return results;
}

void ExportedProgram::to(torch::Dtype dtype, bool non_blocking) {
  Module::to(dtype, non_blocking);
  for (Parts::Held& each : parts_->held) {
    const bool is_own_buffer = each.kind == InputSpec::Kind::buffer && !each.is_registered;
    if (is_own_buffer && each.tensor.is_floating_point()) each.tensor = each.tensor.to(dtype);
  }
}

void ExportedProgram::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  Module::to(device, dtype, non_blocking);
  to(dtype, non_blocking);
}

}  // namespace levin
