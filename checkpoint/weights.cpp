#include "levin/checkpoint/weights.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <functional>

#include "levin/checkpoint/stream_weights.h"
#include "levin/checkpoint/weights_source.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/process_memory.h"

namespace levin {

namespace {

using TensorMap = std::map<std::string, at::Tensor>;

std::vector<std::string> parts_of(const std::string& name) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    parts.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

TensorMap tensors_of(const torch::nn::Module& module) {
  TensorMap tensors;
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
bool is_loaded_under_another_name(const at::Tensor& tensor, const TensorMap& own,
                                  const std::map<std::string, Named>& named) {
  return std::any_of(own.begin(), own.end(),
                     [&](const auto& other) { return other.second.is_same(tensor) && named.contains(other.first); });
}

// Returns the tensors that do not match and removes them from `named`.
WeightsReport compare(const TensorMap& own, std::map<std::string, Named>& named) {
  WeightsReport report;
  for (const auto& [name, tensor] : own) {
    if (named.contains(name) || is_loaded_under_another_name(tensor, own, named)) continue;
    report.missing.push_back(name + " " + shape_text(tensor.sizes()));
  }
  for (auto it = named.begin(); it != named.end();) {
    const auto& [name, item] = *it;
    const auto mine = own.find(name);
    const std::string shape = shape_text(item.tensor.shape);
    const std::string origin = item.in_file == name ? "" : " (" + cut_text(item.in_file) + " in the file)";
    if (mine == own.end()) report.unexpected.push_back(cut_text(name, 160) + " " + shape + origin);
    const bool fits = mine != own.end() && mine->second.sizes() == at::IntArrayRef(item.tensor.shape);
    if (mine != own.end() && !fits) {
      report.mis_shaped.push_back(name + " is " + shape + " in the file and " + shape_text(mine->second.sizes()) +
                                  " in the module" + origin);
    }
    it = fits ? std::next(it) : named.erase(it);
  }
  return report;
}

// The tensors of a file that fit a module, and what does not.
struct Matched {
  std::map<std::string, Named> named;
  WeightsReport report;
};

// Throws if the module is not to be loaded.
Matched match(const WeightsSource& source, const TensorMap& own, const WeightsOptions& options) {
  Matched matched{rename_all(source, options), {}};
  matched.report = compare(own, matched.named);
  matched.report.loaded = matched.named.size();
  const std::string wrong = matched.report.str();
  if (!wrong.empty() && (options.strict || matched.named.empty())) {
    throw CheckpointError(
        "weights " + options.path +
        (matched.named.empty() ? ": none of them fits the module: " : ": they do not fit the module: ") + wrong +
        ". Rename with map" + (options.strict ? ", or set strict: false to load what fits." : "."));
  }
  return matched;
}

// In PyTorch load_state_dict(strict=False) still fails for a different shape; here it is skipped and reported, because
// a head of another size is common when loading weights.
void warn_of_others(const WeightsReport& report, const std::string& path) {
  const std::string wrong = report.str();
  if (wrong.empty()) return;
  Console::instance().warn("weights " + path + ": " + count_of(static_cast<int64_t>(report.loaded), "tensor") +
                           (report.loaded == 1 ? " was" : " were") + " loaded. Not loaded: " + wrong + ".");
}

// Calls `take` with each name and tensor, from several threads; from one for every `spread` times as many bytes as are
// worth a thread.
void read_each(const std::map<std::string, Named>& named, uint64_t spread,
               const std::function<void(size_t, const std::string&, at::Tensor)>& take) {
  std::vector<std::pair<const std::string*, WeightsSource::Tensor>> jobs;
  uint64_t bytes = 0;
  for (const auto& [name, item] : named) {
    jobs.emplace_back(&name, item.tensor);
    bytes += item.tensor.bytes;
  }
  read_in_parallel(jobs.size(), bytes / spread, [&](size_t i) {
    const auto& [name, tensor] = jobs[i];
    take(i, *name, tensor.read());
  });
}

}  // namespace

std::optional<std::string> renamed(const std::string& name, const std::vector<RenameRule>& rules) {
  const std::vector<std::string> parts = parts_of(name);
  for (const RenameRule& rule : rules) {
    const auto from = rule.from.empty() ? std::vector<std::string>() : parts_of(rule.from);
    if (from.size() > parts.size()) continue;
    std::vector<std::string> stood_for;
    bool fits = true;
    for (size_t i = 0; fits && i < from.size(); ++i) {
      fits = from[i] == "*" || from[i] == parts[i];
      if (from[i] == "*") stood_for.push_back(parts[i]);
    }
    if (!fits) continue;
    if (!rule.to) return std::nullopt;
    auto result = rule.to->empty() ? std::vector<std::string>() : parts_of(*rule.to);
    auto next = stood_for.begin();
    for (auto& part : result) {
      if (part == "*" && next != stood_for.end()) part = *next++;
    }
    result.insert(result.end(), parts.begin() + static_cast<std::ptrdiff_t>(from.size()), parts.end());
    std::string text;
    for (const auto& part : result) text += (&part == result.data() ? "" : ".") + part;
    return text;
  }
  return name;
}

bool detail::stars_match(const std::vector<RenameRule>& map) {
  const auto stars = [](const std::string& text) {
    const auto parts = parts_of(text);
    return std::count(parts.begin(), parts.end(), "*");
  };
  return std::all_of(map.begin(), map.end(),
                     [&](const RenameRule& rule) { return !rule.to || stars(*rule.to) == stars(rule.from); });
}

WeightsReport load_weights(torch::nn::Module& module, const WeightsOptions& unchecked) {
  const WeightsOptions options = checked(unchecked, "WeightsOptions");
  const WeightsSource source(options.path);
  const TensorMap own = tensors_of(module);
  const Matched matched = match(source, own, options);
  std::vector<std::pair<at::Tensor, at::Tensor>> copies(matched.named.size());  // to, from
  read_each(matched.named, 1, [&](size_t i, const std::string& name, at::Tensor tensor) {
    copies[i] = {own.at(name), std::move(tensor)};
  });
  const at::AutoGradMode no_grad(false);
  for (auto& [to, from] : copies) to.copy_(from);
  warn_of_others(matched.report, options.path);
  return matched.report;
}

WeightsReport stream_weights(torch::nn::Module& module, const WeightsOptions& unchecked) {
  const WeightsOptions options = checked(unchecked, "WeightsOptions");
  const WeightsSource source(options.path);
  const TensorMap own = tensors_of(module);
  const Matched matched = match(source, own, options);
  // malloc keeps a part of what each thread has freed, so few threads read: one for 512 MiB of weights.
  read_each(matched.named, 64, [&](size_t, const std::string& name, const at::Tensor& tensor) {
    const at::AutoGradMode no_grad(false);  // of this thread
    at::Tensor(own.at(name)).copy_(tensor);
  });
  return_freed_memory();
  warn_of_others(matched.report, options.path);
  return matched.report;
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
