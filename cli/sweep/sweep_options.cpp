#include "levin/cli/sweep/sweep_options.h"

#include <filesystem>

#include "levin/cli/sweep/sobol.h"
#include "levin/core/error.h"
#include "levin/yaml/yaml_file.h"

namespace levin {

namespace {

void check_search(const SweepFile& file, const ConfigNode& node, Problems& problems) {
  const SweepOptions& options = file.options;
  const SearchMethod method = options.search.method;
  const auto* search = node.find("search");
  const Mark mark = search != nullptr ? search->mark : node.mark;
  const std::string word = ValueType<SearchMethod>::write(method).text;
  if (!options.max_trials && method != SearchMethod::grid && method != SearchMethod::hyperband) {
    problems.add(node.mark, "max_trials", "is not set, and " + word + " has no end of its own. Write max_trials: 40.");
  }
  if (options.max_trials && *options.max_trials < 1) {
    problems.add(node.mark, "max_trials", "must be >= 1, got " + std::to_string(*options.max_trials) + ".");
  }
  if (method == SearchMethod::sobol && file.space.size() > kSobolDimensions) {
    problems.add(mark, "search.method",
                 "sobol takes up to " + std::to_string(kSobolDimensions) + " keys, and space has " +
                     std::to_string(file.space.size()) + ". Use random.");
  }
  if (method == SearchMethod::grid) {
    for (const auto& range : file.space) {
      if (range.kind != Range::Kind::uniform && range.kind != Range::Kind::log_uniform) continue;
      problems.add(range.mark, "space." + range.path,
                   "a grid needs single values, and this is " + range.str() +
                       ". Write {grid: [A, B, C]} or {int: [A, B]}, or use search: {method: random}.");
    }
  }
  const auto& most = options.search.max_resource;
  if (most && *most < options.search.min_resource) {
    problems.add(mark, "search.max_resource",
                 "must be at least min_resource (" + std::to_string(options.search.min_resource) + "), got " +
                     std::to_string(*most) + ".");
  }
}

SweepFile read_sweep_node(const ConfigNode& node, const std::string& name, Problems& problems) {
  SweepFile file;
  file.name = name;
  (void)read_options(node, file.options, "", problems);
  const ConfigNode& run = file.options.run;
  if (!run.is_map() && !(run.is_scalar() && !run.text.empty())) {
    problems.add(run.mark.line > 0 ? run.mark : node.mark, "run",
                 "expected the name of a run file, or its contents as a map, got " + run.shown() + ".");
  }
  file.space = read_space(file.options.space, problems);
  if (problems.empty()) check_search(file, node, problems);
  return file;
}

}  // namespace

SweepFile read_sweep_file(const std::string& path, const std::vector<Override>& changes, Problems& problems) {
  ConfigNode node = read_yaml_input(path, problems);
  if (!problems.empty()) return {};
  for (const Override& change : changes) apply_override(node, change, problems);
  if (!problems.empty()) return {};
  return read_sweep_node(node, std::filesystem::path(path).stem().string(), problems);
}

SweepFile read_sweep_text(const std::string& text, const std::string& name, Problems& problems) {
  const ConfigNode node = read_yaml_text(text, name + ".yaml", problems);
  if (!problems.empty()) return {};
  return read_sweep_node(node, name, problems);
}

}  // namespace levin
