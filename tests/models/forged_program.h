// model.json of a .pt2 file with other operators than PyTorch wrote.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>

#include <nlohmann/json.hpp>
#include <string>

namespace levin::test {

/// "$x" is the tensor x and ["$x", "$y"] a list of tensors; an object ({"as_scalar_type": 7}) is written unchanged.
inline nlohmann::json forged_argument(const nlohmann::json& value) {
  const auto is_tensor = [](const nlohmann::json& one) {
    return one.is_string() && one.get<std::string>().starts_with('$');
  };
  const auto tensor = [](const nlohmann::json& one) {
    return nlohmann::json{{"name", one.get<std::string>().substr(1)}};
  };
  if (value.is_object()) return value;
  if (value.is_null()) return {{"as_none", true}};
  if (is_tensor(value)) return {{"as_tensor", tensor(value)}};
  if (value.is_string()) return {{"as_string", value}};
  if (value.is_boolean()) return {{"as_bool", value}};
  if (value.is_number_integer()) return {{"as_int", value}};
  if (value.is_number()) return {{"as_float", value}};
  if (value.empty() || value[0].is_number_integer()) return {{"as_ints", value}};
  if (!is_tensor(value[0])) return {{"as_floats", value}};
  nlohmann::json tensors = nlohmann::json::array();
  for (const auto& item : value) tensors.push_back(tensor(item));
  return {{"as_tensors", tensors}};
}

/// Adds calls to a program: [["relu.default", {"self": "$x"}, "y"], …], where y names the first result. The program
/// then returns the last result that has a name.
inline void add_calls(nlohmann::json& model, const nlohmann::json& calls) {
  auto& graph = model["graph_module"]["graph"];
  nlohmann::json result = graph["outputs"][0];
  for (const auto& call : calls) {
    const auto target = call.at(0).get<std::string>();
    nlohmann::json node = {
        {"name", "call"}, {"target", "torch.ops.aten." + target}, {"metadata", nlohmann::json::object()}};
    node["inputs"] = node["outputs"] = nlohmann::json::array();
    for (const auto& [name, value] : call.at(1).items()) {
      node["inputs"].push_back({{"name", name}, {"arg", forged_argument(value)}, {"kind", 1}});
    }
    const size_t dot = target.find('.');
    const std::string overload = dot == std::string::npos ? "" : target.substr(dot + 1);
    const auto op = c10::Dispatcher::singleton().findSchema(
        {"aten::" + target.substr(0, dot), overload == "default" ? "" : overload});
    if (call.size() > 2) {
      const nlohmann::json name = {{"name", call[2]}};
      const auto kind =
          op && !op->schema().returns().empty() ? op->schema().returns()[0].type()->kind() : c10::TypeKind::TensorType;
      if (kind == c10::TypeKind::TensorType) {
        node["outputs"].push_back({{"as_tensor", name}});
      } else if (kind == c10::TypeKind::ListType) {
        node["outputs"].push_back({{"as_tensors", nlohmann::json::array({name})}});
      }
      if (!node["outputs"].empty()) result = {{"as_tensor", name}};
    }
    graph["nodes"].push_back(std::move(node));
  }
  graph["outputs"] = nlohmann::json::array({result});
  model["graph_module"]["signature"]["output_specs"] = nlohmann::json::array({{{"user_output", {{"arg", result}}}}});
}

/// Replaces the operators of a program by calls.
inline void replace_calls(nlohmann::json& model, const nlohmann::json& calls) {
  auto& graph = model["graph_module"]["graph"];
  graph["nodes"] = nlohmann::json::array();
  graph["outputs"] = nlohmann::json::array({{{"as_tensor", {{"name", "x"}}}}});
  graph["tensor_values"] = {{"x", graph["tensor_values"]["x"]}};
  add_calls(model, calls);
}

/// Tensors of other types and shapes than mlp.pt2 has: x is float32 (3, 4), p_first_weight (6, 4), p_first_bias (6).
inline nlohmann::json tensor_calls() {
  return nlohmann::json::parse(R"([
    ["arange.default", {"end": 6}, "i6"],
    ["view.default", {"self": "$i6", "size": [2, 3]}, "i23"],
    ["view.default", {"self": "$i6", "size": [1, 1, 2, 3]}, "i1123"],
    ["full.default", {"size": [4], "fill_value": 1099511627776}, "big"],
    ["full.default", {"size": [4], "fill_value": -1}, "minus"],
    ["full.default", {"size": [4], "fill_value": 2}, "two"],
    ["arange.default", {"end": 24, "dtype": {"as_scalar_type": 7}}, "f24"],
    ["view.default", {"self": "$f24", "size": [4, 6]}, "f46"],
    ["view.default", {"self": "$f24", "size": [2, 3, 4]}, "f234"],
    ["view.default", {"self": "$f24", "size": [1, 2, 3, 4]}, "f1234"],
    ["view.default", {"self": "$f24", "size": [1, 2, 3, 2, 2]}, "f12322"],
    ["to.dtype", {"self": "$f46", "dtype": {"as_scalar_type": 8}}, "d46"],
    ["to.dtype", {"self": "$f46", "dtype": {"as_scalar_type": 13}}, "b46"],
    ["complex.default", {"real": "$f46", "imag": "$f46"}, "c46"],
    ["gt.Scalar", {"self": "$f46", "other": 3}, "mask"],
    ["zeros.default", {"size": [0, 3]}, "none"],
    ["full.default", {"size": [], "fill_value": 0.5}, "half"],
    ["full.default", {"size": [1], "fill_value": 0}, "zero"]
  ])");
}

}  // namespace levin::test
