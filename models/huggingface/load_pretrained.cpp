#include "levin/models/huggingface/load_pretrained.h"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <map>
#include <set>

#include "levin/checkpoint/weights_source.h"
#include "levin/core/error.h"
#include "levin/core/tensor_text.h"
#include "levin/models/huggingface/layers.h"

namespace levin::huggingface {

namespace {

using Tensors = std::map<std::string, at::Tensor>;
using Source = std::map<std::string, WeightsSource::Tensor>;

Tensors parameters_of(const PretrainedModel& model) {
  Tensors tensors;
  for (const auto& item : model.named_parameters()) tensors[item.key()] = item.value();
  return tensors;
}

// Buffers of old versions, which hold no weights.
bool is_old_buffer(const std::string& name) {
  const auto ends = [&](const char* end) { return name.ends_with(end); };
  return ends("position_ids") || ends("rotary_emb.inv_freq") || ends(".attn.bias") || ends(".attn.masked_bias");
}

// TensorFlow's names of a norm's parameters, which files converted from it still have.
std::string modern_name(std::string name) {
  constexpr std::pair<std::string_view, std::string_view> kOld[] = {{"LayerNorm.gamma", "LayerNorm.weight"},
                                                                    {"LayerNorm.beta", "LayerNorm.bias"}};
  for (const auto& [old, now] : kOld) {
    if (name.ends_with(old)) name.replace(name.size() - old.size(), old.size(), now);
  }
  return name;
}

// The model's name for a tensor of the file: as it is, with the base model's prefix, or without.
std::string name_in_model(const std::string& in_file, const PretrainedModel& model,
                          const std::set<std::string>& known) {
  const std::string name = modern_name(in_file), prefix = model.base_model_prefix() + ".";
  if (known.contains(name)) return name;
  if (known.contains(prefix + name)) return prefix + name;
  if (name.starts_with(prefix) && known.contains(name.substr(prefix.size()))) return name.substr(prefix.size());
  return name;
}

// What goes where: the file's tensors by the model's names.
struct Matches {
  Source found = {};    // of parameters, with the right shape
  Source aliases = {};  // of second names of parameters that are in the file under the first
  LoadReport report = {};
};

Matches match(const PretrainedModel& model, const Tensors& own, const WeightsSource& source) {
  std::set<std::string> known;
  for (const auto& [name, tensor] : own) known.insert(name);
  for (const auto& second : model.aliases()) known.insert(second.alias);
  Matches matches;
  Source named;
  for (const auto& [in_file, tensor] : source.tensors()) named.emplace(name_in_model(in_file, model, known), tensor);
  for (const auto& second : model.aliases()) {
    const auto place = named.find(second.alias);
    if (place == named.end()) continue;
    if (!named.emplace(second.name, place->second).second && !second.is_written) matches.aliases.insert(*place);
    named.erase(place);
  }
  for (const auto& [name, tensor] : named) {
    const auto mine = own.find(name);
    const std::string shape = shape_text(tensor.shape);
    if (mine == own.end()) {
      if (!is_old_buffer(name)) matches.report.unexpected.push_back(cut_text(name, 160));
    } else if (mine->second.sizes() == at::IntArrayRef(tensor.shape)) {
      matches.found.emplace(name, tensor);
    } else {
      matches.report.mis_shaped.push_back(name + " is " + shape + " in the file and " +
                                          shape_text(mine->second.sizes()) + " in the model");
    }
  }
  for (const auto& [name, tensor] : own) {
    if (!matches.found.contains(name)) matches.report.newly_initialized.push_back(name);
  }
  return matches;
}

void check(const Matches& matches, const std::string& folder, bool ignore_mismatched_sizes) {
  const LoadReport& report = matches.report;
  if (matches.found.empty()) {
    throw CheckpointError(folder + ": none of its tensors fits the model of its config.json: " + report.str() + ".");
  }
  if (report.mis_shaped.empty() || ignore_mismatched_sizes) return;
  throw CheckpointError(folder + ": its weights do not fit: " + join(report.mis_shaped) +
                        ". Set ignore_mismatched_sizes to start these anew, as for a head with other labels.");
}

// New weights, such as a head's, are never more than the file has: else its config.json is another's.
void check_new(const Matches& matches, const Tensors& own, const WeightsSource& source, const std::string& folder) {
  constexpr double few = 16e6;
  double has = 0, lacks = 0;
  for (const auto& [name, tensor] : source.tensors()) {
    has += tensor.bytes == 0 ? 0 : static_cast<double>(c10::multiply_integers(tensor.shape));
  }
  std::pair<double, std::string> largest;
  for (const std::string& name : matches.report.newly_initialized) {
    const auto numbers = static_cast<double>(own.at(name).numel());
    lacks += numbers;
    largest = std::max(largest, {numbers, name});
  }
  if (lacks <= std::max(has, few)) return;
  throw CheckpointError(folder + ": the model of its config.json has " + number_text(lacks) +
                        " numbers that its weights do not have (" + largest.second +
                        " has the most), and the weights have " + number_text(has) +
                        ". Give the config.json that was saved with them.");
}

// One tensor at a time and thread, so that little more memory is needed than the model's own.
void read_into(const Tensors& own, const Source& found) {
  std::vector<std::pair<at::Tensor, WeightsSource::Tensor>> jobs;
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : found) {
    jobs.emplace_back(own.at(name), tensor);
    bytes += tensor.bytes;
  }
  read_in_parallel(jobs.size(), bytes, [&](size_t i) {
    const at::AutoGradMode no_grad(false);
    jobs[i].first.copy_(jobs[i].second.read());
  });
}

// transformers leaves such weights untied, with a warning; here the config must say which it is.
void check_aliases(const PretrainedModel& model, const Tensors& own, const Source& aliases, const std::string& folder) {
  for (const auto& [alias, name, is_written] : model.aliases()) {
    const auto second = aliases.find(alias);
    if (second == aliases.end()) continue;
    const at::Tensor mine = own.at(name);
    const at::Tensor other = second->second.read().to(mine.options());
    if (mine.sizes() == other.sizes() && at::equal(mine.detach(), other)) continue;
    throw CheckpointError(folder + ": its config.json ties " + alias + " to " + name +
                          ", and its files hold two different tensors. Set \"tie_word_embeddings\": false there.");
  }
}

// The first names, and how many more there are.
std::string few(const std::vector<std::string>& names) {
  constexpr size_t most = 8;
  if (names.size() <= most) return join(names);
  return join({names.begin(), names.begin() + most}) + " and " + std::to_string(names.size() - most) + " more";
}

}  // namespace

void init_weights(PretrainedModel& model, const std::vector<std::string>& only) {
  const at::AutoGradMode no_grad(false);
  double deviation = 0.02;
  if (const ConfigNode* range = model.config().find("initializer_range")) {
    if (!detail::parse_double(*range, deviation) || deviation == 0) deviation = 0.02;
  }
  const std::set<std::string> wanted(only.begin(), only.end());
  for (const auto& module : model.named_modules("", /*include_self=*/true)) {
    auto* starter = dynamic_cast<HasStartingWeights*>(module.value().get());
    for (const auto& item : module.value()->named_parameters(/*recurse=*/false)) {
      const std::string name = module.key().empty() ? item.key() : module.key() + "." + item.key();
      if (!wanted.empty() && !wanted.contains(name)) continue;
      if (starter == nullptr) throw Error("init_weights: nothing says how " + name + " starts.");
      at::Tensor parameter = item.value();
      starter->start(item.key(), parameter, deviation);
    }
  }
}

std::string LoadReport::str() const {
  std::string text;
  const auto add = [&](const std::string& what, const std::vector<std::string>& names) {
    if (!names.empty()) text += (text.empty() ? "" : "; ") + what + few(names);
  };
  add("newly initialized: ", newly_initialized);
  add("not in the model: ", unexpected);
  add("of another shape: ", mis_shaped);
  return text;
}

LoadReport load_pretrained(PretrainedModel& model, const WeightsSource& source, const std::string& folder,
                           bool ignore_mismatched_sizes) {
  const Tensors own = parameters_of(model);
  Matches matches = match(model, own, source);
  check(matches, folder, ignore_mismatched_sizes);
  check_new(matches, own, source, folder);
  matches.report.loaded = matches.found.size();
  read_into(own, matches.found);
  check_aliases(model, own, matches.aliases, folder);
  if (!matches.report.newly_initialized.empty()) init_weights(model, matches.report.newly_initialized);
  return matches.report;
}

}  // namespace levin::huggingface
