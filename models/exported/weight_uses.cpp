#include "levin/models/exported/weight_uses.h"

#include <algorithm>
#include <string_view>

namespace levin::exported {

namespace {

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
