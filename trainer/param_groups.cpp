#include "levin/trainer/param_groups.h"

#include <fnmatch.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "levin/optim/optimizer.h"

namespace levin {

namespace {

struct NamedParameter {
  std::vector<std::string> names;  // several if its layer is registered more than once
  at::Tensor value;
  bool decays = true;  // neither a bias nor a normalization layer's
};

bool is_bias(const std::string& name) {
  return name == "bias" || (name.size() > 4 && name.compare(name.size() - 4, 4, "bias") == 0);
}

std::vector<NamedParameter> all_parameters(const torch::nn::Module& module) {
  std::vector<NamedParameter> list;
  std::unordered_map<const c10::TensorImpl*, size_t> indices;
  for (const auto& entry : module.named_parameters()) {
    const auto [known, is_new] = indices.emplace(entry.value().unsafeGetTensorImpl(), list.size());
    if (is_new) list.push_back({{}, entry.value()});
    list[known->second].names.push_back(entry.key());
  }
  const auto mark = [&](const torch::nn::Module& layer) {
    const bool is_norm = layer.name().find("Norm") != std::string::npos;
    for (const auto& entry : layer.named_parameters(/*recurse=*/false)) {
      if (is_norm || is_bias(entry.key())) list[indices.at(entry.value().unsafeGetTensorImpl())].decays = false;
    }
  };
  mark(module);
  for (const auto& layer : module.modules(/*include_self=*/false)) mark(*layer);
  return list;
}

bool matches(const std::string& pattern, const NamedParameter& parameter) {
  return std::any_of(parameter.names.begin(), parameter.names.end(),
                     [&](const auto& name) { return fnmatch(pattern.c_str(), name.c_str(), 0) == 0; });
}

// The index of the first wanted group that takes the parameter; their number if none does.
size_t group_of(const NamedParameter& parameter, const std::vector<ParamGroupOptions>& wanted) {
  const auto found = std::find_if(wanted.begin(), wanted.end(), [&](const auto& group) {
    return std::any_of(group.params.begin(), group.params.end(),
                       [&](const auto& pattern) { return matches(pattern, parameter); });
  });
  return static_cast<size_t>(found - wanted.begin());
}

// The group that holds the first parameter that `pattern` of group `own` matches, if all of them are in earlier ones.
std::optional<size_t> taken_by(const std::vector<NamedParameter>& parameters,
                               const std::vector<ParamGroupOptions>& wanted, size_t own, const std::string& pattern) {
  std::optional<size_t> first;
  for (const auto& parameter : parameters) {
    if (!matches(pattern, parameter)) continue;
    const size_t group = group_of(parameter, wanted);
    if (group == own) return std::nullopt;
    first = first.value_or(group);
  }
  return first;
}

// A pattern without a match, or with none that is left to it, is a mistake: the setting would have no effect.
void check_patterns(const std::vector<NamedParameter>& parameters, const std::vector<ParamGroupOptions>& wanted,
                    const std::string& path) {
  std::vector<std::string> names;
  for (const auto& parameter : parameters) names.insert(names.end(), parameter.names.begin(), parameter.names.end());
  Problems problems;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const std::string here = detail::index_path(path, i);
    check_options(wanted[i], here, problems);
    for (const auto& pattern : wanted[i].params) {
      if (const auto earlier = taken_by(parameters, wanted, i, pattern)) {
        problems.add({}, here + ".params",
                     "all that \"" + pattern + "\" matches is in " + detail::index_path(path, *earlier) +
                         " already: the first group that matches counts. Write the narrower pattern first.");
        continue;
      }
      const auto is_match = [&](const auto& parameter) { return matches(pattern, parameter); };
      if (std::any_of(parameters.begin(), parameters.end(), is_match)) continue;
      problems.add({}, here + ".params",
                   "no parameter's name matches \"" + pattern + "\"." + did_you_mean(pattern, names) +
                       " Parameters: " + join(names) + ".");
    }
  }
  problems.throw_if_any();
}

}  // namespace

std::vector<ParamGroup> param_groups(const torch::nn::Module& module, const std::vector<ParamGroupOptions>& wanted,
                                     bool no_decay, const std::string& path) {
  const std::vector<NamedParameter> parameters = all_parameters(module);
  check_patterns(parameters, wanted, path);
  // Two for each wanted group and for the rest: with and without weight decay.
  std::vector<ParamGroup> groups(2 * (wanted.size() + 1));
  for (size_t i = 0; i < groups.size(); ++i) {
    const bool rest = i / 2 == wanted.size();
    const ParamGroupOptions settings = rest ? ParamGroupOptions{} : wanted[i / 2];
    groups[i].lr = settings.lr;
    groups[i].momentum = settings.momentum;
    groups[i].weight_decay = settings.weight_decay;
    if (no_decay && i % 2 == 1 && !settings.weight_decay) groups[i].weight_decay = 0;
  }
  for (const auto& parameter : parameters) {
    if (!parameter.value.requires_grad()) continue;  // parameters frozen by a callback are added when unfrozen
    const size_t index = group_of(parameter, wanted);
    const bool own_decay = index < wanted.size() && wanted[index].weight_decay.has_value();
    const bool decays = parameter.decays || !no_decay || own_decay;
    groups[2 * index + (decays ? 0 : 1)].params.push_back(parameter.value);
  }
  std::erase_if(groups, [](const ParamGroup& group) { return group.params.empty(); });
  if (groups.empty()) {
    throw ConfigError(path + ": the model has no parameter that requires a gradient. Register some, or unfreeze() it.");
  }
  return groups;
}

}  // namespace levin
