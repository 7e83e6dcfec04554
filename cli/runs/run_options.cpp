#include "levin/cli/runs/run_options.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>

#include "levin/yaml/yaml_file.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

bool is_list_of_scalars(const ConfigNode& node) {
  return node.is_list() &&
         std::all_of(node.items.begin(), node.items.end(), [](const ConfigNode& item) { return item.is_scalar(); });
}

void flatten(const ConfigNode& node, const std::string& name, FlatOptions& into) {
  if (node.is_map() && !node.entries.empty()) {
    for (const auto& entry : node.entries) flatten(entry.value, join_path(name, entry.key), into);
  } else if (is_list_of_scalars(node)) {
    std::string text = "[";
    for (const auto& item : node.items) text += (text.size() > 1 ? ", " : "") + item.text;
    into.emplace_back(name, text + "]");
  } else if (node.is_list()) {
    for (size_t k = 0; k < node.items.size(); ++k) flatten(node.items[k], join_path(name, std::to_string(k)), into);
  } else {
    into.emplace_back(name, node.is_scalar() ? node.text : node.is_map() ? "{}" : "null");
  }
}

FlatOptions read_options_file(const fs::path& path, RunOptions& options) {
  std::error_code code;
  if (!fs::exists(path, code)) return {};
  Problems problems;
  const ConfigNode node = read_yaml_file(path.string(), problems);
  for (const auto& line : problems.lines()) options.problems.push_back(line);
  FlatOptions flat;
  if (node.is_map() && !node.entries.empty()) flatten(node, "", flat);
  return flat;
}

std::string_view last_part(std::string_view name) {
  return name.substr(name.rfind('.') + 1);
}

bool same_values(const OptionRow& a, const OptionRow& b) {
  for (size_t run = 0; run < a.values.size(); ++run) {
    const std::string* one = a.values[run];
    const std::string* other = b.values[run];
    if ((one == nullptr) != (other == nullptr) || (one != nullptr && *one != *other)) return false;
  }
  return true;
}

class OptionTable {
 public:
  explicit OptionTable(size_t runs) : runs_(runs) {}

  // Options that the first runs lack stand behind the one they follow in their own file.
  void add(size_t run, const FlatOptions& options) {
    size_t at = 0;
    for (const auto& [name, value] : options) {
      const auto [found, is_new] = places_.emplace(name, rows.size());
      if (is_new) rows.push_back({name, std::vector<const std::string*>(runs_, nullptr), false});
      at = found->second;
      rows[at].values[run] = &value;
    }
  }

  std::vector<OptionRow> rows = {};

 private:
  size_t runs_;
  std::unordered_map<std::string, size_t> places_ = {};
};

}  // namespace

RunOptions read_run_options(const std::string& folder) {
  RunOptions options;
  options.hparams = read_options_file(fs::path(folder) / "hparams.yaml", options);
  options.config = read_options_file(fs::path(folder) / "config.yaml", options);
  return options;
}

FlatOptions flattened(const ConfigNode& node) {
  FlatOptions flat;
  if (!node.is_map() || !node.entries.empty()) flatten(node, "", flat);
  return flat;
}

const std::string* find_option(const FlatOptions& options, const std::string& name) {
  const auto found =
      std::find_if(options.begin(), options.end(), [&](const auto& option) { return option.first == name; });
  return found == options.end() ? nullptr : &found->second;
}

std::vector<OptionRow> compare_options(const std::vector<const RunOptions*>& runs) {
  OptionTable hparams(runs.size());
  OptionTable config(runs.size());
  for (size_t run = 0; run < runs.size(); ++run) {
    hparams.add(run, runs[run]->hparams);
    config.add(run, runs[run]->config);
  }
  std::map<std::string_view, const OptionRow*> known;
  for (const OptionRow& row : hparams.rows) known.emplace(row.name, &row);
  std::vector<OptionRow> rows = hparams.rows;
  for (OptionRow& row : config.rows) {
    const auto hparam = known.find(last_part(row.name));
    const bool is_module = row.name.starts_with("model.") || row.name.starts_with("data.");
    if (is_module && hparam != known.end() && same_values(*hparam->second, row)) continue;
    rows.push_back(std::move(row));
  }
  for (OptionRow& row : rows) {
    const std::string* first = row.values.empty() ? nullptr : row.values[0];
    row.differs = std::any_of(row.values.begin(), row.values.end(), [first](const std::string* value) {
      return (value == nullptr) != (first == nullptr) || (value != nullptr && *value != *first);
    });
  }
  return rows;
}

std::vector<std::string> short_option_names(const std::vector<std::string>& names) {
  std::vector<std::string> shorter;
  std::map<std::string_view, int> uses;
  for (const auto& name : names) {
    for (size_t at = name.size(); at != std::string::npos && at > 0;) {
      at = name.rfind('.', at - 1);
      ++uses[std::string_view(name).substr(at == std::string::npos ? 0 : at + 1)];
    }
  }
  for (const auto& name : names) {
    std::string_view best = name;
    for (size_t at = name.size(); at != std::string::npos && at > 0;) {
      at = name.rfind('.', at - 1);
      const std::string_view end = std::string_view(name).substr(at == std::string::npos ? 0 : at + 1);
      const bool is_index = !end.empty() && end.find_first_not_of("0123456789") == std::string_view::npos;
      if (end.empty() || is_index || uses[end] > 1) continue;
      best = end;
      break;
    }
    shorter.emplace_back(best);
  }
  return shorter;
}

}  // namespace levin
