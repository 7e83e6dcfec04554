#include "levin/checkpoint/weights.h"

#include <torch/nn/module.h>

#include <algorithm>

#include "levin/checkpoint/weights_source.h"
#include "levin/core/console.h"
#include "levin/core/count_of.h"

namespace levin {

namespace {

using Tensors = std::map<std::string, at::Tensor>;

Tensors tensors_of(const torch::nn::Module& module) {
  Tensors tensors;
  for (const auto& item : module.named_parameters()) tensors[item.key()] = item.value();
  for (const auto& item : module.named_buffers()) tensors[item.key()] = item.value();
  return tensors;
}

// The file's tensors by the module's names.
struct Named {
  std::string in_file;
  WeightsSource::Tensor tensor;
};

std::map<std::string, Named> rename_all(const WeightsSource& source, const WeightsOptions& options) {
  std::map<std::string, Named> named;
  for (const auto& [name, tensor] : source.tensors()) {
    const auto to = renamed(name, options.map);
    if (!to) continue;
    const auto [place, is_new] = named.emplace(*to, Named{name, tensor});
    if (is_new) continue;
    throw CheckpointError("weights " + options.path + ": \"" + cut_text(place->second.in_file) + "\" and \"" +
                          cut_text(name) + "\" both become \"" + cut_text(*to) + "\". Change the rules in map.");
  }
  return named;
}

// A tensor that the module holds under two names need only be in the file once: writers of safetensors omit the second.
bool is_loaded_under_another_name(const at::Tensor& tensor, const Tensors& own,
                                  const std::map<std::string, Named>& named) {
  return std::any_of(own.begin(), own.end(),
                     [&](const auto& other) { return other.second.is_same(tensor) && named.contains(other.first); });
}

// The tensors that do not match; `named` keeps those that do.
WeightsReport compare(const Tensors& own, std::map<std::string, Named>& named) {
  WeightsReport report;
  for (const auto& [name, tensor] : own) {
    if (named.contains(name) || is_loaded_under_another_name(tensor, own, named)) continue;
    report.missing.push_back(name + " " + shape_text(tensor.sizes()));
  }
  for (auto it = named.begin(); it != named.end();) {
    const auto& [name, item] = *it;
    const auto mine = own.find(name);
    const std::string shape = shape_text(item.tensor.entry->shape);
    const std::string origin = item.in_file == name ? "" : " (" + cut_text(item.in_file) + " in the file)";
    if (mine == own.end()) report.unexpected.push_back(cut_text(name, 160) + " " + shape + origin);
    const bool fits = mine != own.end() && mine->second.sizes() == at::IntArrayRef(item.tensor.entry->shape);
    if (mine != own.end() && !fits) {
      report.mis_shaped.push_back(name + " is " + shape + " in the file and " + shape_text(mine->second.sizes()) +
                                  " in the module" + origin);
    }
    it = fits ? std::next(it) : named.erase(it);
  }
  return report;
}

Tensors read_all(const std::map<std::string, Named>& named) {
  std::vector<WeightsSource::Tensor> jobs;
  uint64_t bytes = 0;
  for (const auto& [name, item] : named) {
    jobs.push_back(item.tensor);
    bytes += item.tensor.entry->bytes();
  }
  std::vector<at::Tensor> read(jobs.size());
  read_in_parallel(jobs.size(), bytes, [&](size_t i) { read[i] = jobs[i].file->read(*jobs[i].entry); });
  Tensors tensors;
  for (const auto& [name, item] : named) tensors[name] = std::move(read[tensors.size()]);
  return tensors;
}

}  // namespace

WeightsReport load_weights(torch::nn::Module& module, const WeightsOptions& unchecked) {
  const WeightsOptions options = checked(unchecked, "WeightsOptions");
  const WeightsSource source(options.path);
  const Tensors own = tensors_of(module);
  std::map<std::string, Named> named = rename_all(source, options);
  WeightsReport report = compare(own, named);
  report.loaded = named.size();
  const std::string wrong = report.str();
  if (!wrong.empty() && (options.strict || named.empty())) {
    throw CheckpointError("weights " + options.path +
                          (named.empty() ? ": none of them fits the module: " : ": they do not fit the module: ") +
                          wrong + ". Rename with map" +
                          (options.strict ? ", or set strict: false to load what fits." : "."));
  }
  const Tensors tensors = read_all(named);
  const at::AutoGradMode no_grad(false);
  for (const auto& [name, tensor] : tensors) at::Tensor(own.at(name)).copy_(tensor);
  // In PyTorch load_state_dict(strict=False) still fails for another shape; here it is skipped and reported, because a
  // head of another size is common when loading weights.
  if (!wrong.empty()) {
    Console::instance().warn("weights " + options.path + ": " + count_of(tensors.size(), "tensor") +
                             (tensors.size() == 1 ? " was" : " were") + " loaded. Not loaded: " + wrong + ".");
  }
  return report;
}

std::string WeightsReport::str() const {
  std::string text;
  const auto add = [&](const std::string& what, const std::vector<std::string>& names) {
    if (!names.empty()) text += (text.empty() ? "" : "; ") + what + join(names);
  };
  add("missing ", missing);
  add("unexpected ", unexpected);
  add("", mis_shaped);
  return text;
}

}  // namespace levin
