#include "levin/models/exported/part_tree.h"

#include <c10/util/Exception.h>
#include <torch/nn/modules/container/modulelist.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "levin/models/exported/regions.h"

namespace levin::exported {

namespace {

using torch::nn::Module;

constexpr const char* kOnePlace = "a submodule of an exported program computes on one device: give it the index of one";

// Holds parameters, buffers and a mode; its operators are the program's.
class Part : public Module, public KnowsWeightUse {
 public:
  Part() : Module("Exported") {}
  std::shared_ptr<Module> clone(const std::optional<torch::Device>&) const override { TORCH_CHECK(false, kOnePlace); }
  [[nodiscard]] std::optional<Known> weight_use() const override { return known_; }
  void set_weight_use(Known known) {
    if (!known_ || known_->use != WeightUse::embedding) known_ = known;
  }

 private:
  std::optional<Known> known_ = {};
};

class PartList : public torch::nn::ModuleListImpl {
 public:
  std::shared_ptr<Module> clone(const std::optional<torch::Device>&) const override { TORCH_CHECK(false, kOnePlace); }
};

std::string joined(const std::string& outer, const std::string& name) {
  return outer.empty() ? name : outer + "." + name;
}

bool is_number(const std::string& name) {
  const bool digits = std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  return digits && name.size() < 10 && (name.size() == 1 || name[0] != '0');
}

bool is_less(const std::string& one, const std::string& other) {
  return std::pair(one.size(), one) < std::pair(other.size(), other);
}

constexpr std::string_view kAtenOperators = "torch.ops.aten.";

// "conv2d" of torch.ops.aten.conv2d.padding.
std::string aten_operator(const std::string& target) {
  if (!target.starts_with(kAtenOperators)) return "";
  const std::string rest = target.substr(kAtenOperators.size());
  return rest.substr(0, rest.find('.'));
}

const Argument* argument_called(const Node& node, const char* name) {
  const auto found =
      std::find_if(node.inputs.begin(), node.inputs.end(), [&](const auto& i) { return i.name == name; });
  return found == node.inputs.end() ? nullptr : &found->argument;
}

KnowsWeightUse::Known use_in(const Node& node) {
  const std::string name = aten_operator(node.target);
  if (name == "embedding") return {WeightUse::embedding};
  const bool is_general = name == "convolution" || name == "_convolution";
  if (!is_general && name != "conv1d" && name != "conv2d" && name != "conv3d") return {WeightUse::other};
  const Argument* transposed = argument_called(node, "transposed");
  if (transposed != nullptr && transposed->constant.isBool() && transposed->constant.toBool()) {
    return {WeightUse::other};
  }
  const Argument* groups = argument_called(node, "groups");
  return {WeightUse::convolution, groups != nullptr && groups->constant.isInt() ? groups->constant.toInt() : 1};
}

// They have a weight of their own kind too; others that have one (linear) are left to its dimensions.
bool is_of_interest(const Node& node) {
  const std::string name = aten_operator(node.target);
  return name.find("conv") != std::string::npos || name.find("embedding") != std::string::npos;
}

}  // namespace

PartTree::PartTree(Module& root, const std::vector<std::string>& holding, const std::vector<std::string>& called) {
  modules_[""] = &root;
  branches_[""];
  for (const std::string& name : holding) (void)plan(name, true);
  for (auto& [name, branch] : branches_) branch.next = branch.children.begin();
  for (const std::string& name : called) (void)plan(name, false);
  (void)sort_blocks("", {called.begin(), called.end()});
  make("", {called.begin(), called.end()});
}

PartTree::Branch& PartTree::plan(const std::string& name, bool holds) {
  if (name.empty()) return branches_[name];
  const std::string outer = parent_name(name);
  Branch& around = plan(outer, holds);
  const auto [found, is_new] = branches_.try_emplace(name);
  Branch& own = found->second;
  if (is_new) {
    const std::string child = outer.empty() ? name : name.substr(outer.size() + 1);
    own.place = around.children.insert(holds ? around.children.end() : around.next, child);
    own.next = own.children.end();
    if (holds) around.holding.push_back(child);
  }
  if (!holds) around.next = std::next(own.place);
  return own;
}

// Brings blocks into the order of their numbers, where weights are in it already; whether they are a list's.
bool PartTree::sort_blocks(const std::string& name, const std::set<std::string>& called) {
  auto& [children, holding, place, next] = branches_[name];
  if (children.empty() || !std::all_of(children.begin(), children.end(), is_number) ||
      !std::is_sorted(holding.begin(), holding.end(), is_less)) {
    return false;
  }
  children.sort(is_less);
  return std::all_of(children.begin(), children.end(),
                     [&](const std::string& child) { return called.contains(joined(name, child)); });
}

void PartTree::make(const std::string& name, const std::set<std::string>& called) {
  for (const std::string& child : branches_[name].children) {
    const std::string full = joined(name, child);
    const bool is_list = sort_blocks(full, called);
    const auto part = is_list ? std::shared_ptr<Module>(std::make_shared<PartList>()) : std::make_shared<Part>();
    modules_[full] = modules_.at(name)->register_module(child, part).get();
    make(full, called);
  }
}

Module& PartTree::at(const std::string& name) {
  if (Module* const found = find(name)) return *found;
  const std::string outer = parent_name(name);
  const auto part =
      at(outer).register_module(outer.empty() ? name : name.substr(outer.size() + 1), std::make_shared<Part>());
  return *(modules_[name] = part.get());
}

void PartTree::set_weight_use(const std::string& name, KnowsWeightUse::Known known) {
  if (auto* part = dynamic_cast<Part*>(&at(name))) part->set_weight_use(known);
}

Module* PartTree::find(const std::string& name) const {
  const auto found = modules_.find(name);
  return found == modules_.end() ? nullptr : found->second;
}

std::map<std::string, KnowsWeightUse::Known> weight_uses(const Program& program) {
  std::map<size_t, std::string> parameters;  // by the value in the graph
  for (size_t k = 0; k < program.inputs.size(); ++k) {
    const InputSpec& input = program.inputs[k];
    const bool is_weight = input.name == "weight" || input.name.ends_with(".weight");
    if (input.kind == InputSpec::Kind::parameter && is_weight) parameters[program.graph.inputs[k].value] = input.name;
  }
  std::map<std::string, KnowsWeightUse::Known> uses;
  for (const Node& node : program.graph.nodes) {
    const Argument* weight = argument_called(node, "weight");
    if (weight == nullptr || weight->kind != Argument::Kind::value) continue;
    const auto parameter = parameters.find(weight->value);
    if (parameter == parameters.end()) continue;
    if (is_of_interest(node)) uses.emplace(parameter->second, use_in(node));
  }
  return uses;
}

}  // namespace levin::exported
