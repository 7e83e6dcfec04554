#include "levin/cli/config/open_plugins.h"

#include <filesystem>
#include <set>

#include "levin/cli/config/run_config.h"
#include "levin/core/error.h"
#include "levin/core/exception_text.h"
#include "levin/core/shared_library.h"

namespace levin {

namespace {

constexpr const char* kFix =
    "Build it against this Levin (find_package(levin), levin::levin) and this LibTorch, as a shared library.";

void open_plugin(const std::string& path, Problems& problems) {
  static std::set<std::string> opened;  // resolve_run may see a run file several times
  std::error_code code;
  const auto file = std::filesystem::canonical(path, code);
  if (code) {
    problems.add({}, "plugins",
                 "there is no file " + path + " (from " + std::filesystem::current_path().string() + ").");
    return;
  }
  if (opened.contains(file)) return;
  try {
    SharedLibrary(file, "plugins", kFix).keep();
    opened.insert(file);
  } catch (const std::exception& error) {  // of the loader, or of a constructor in the library
    std::string text = exception_text(error);
    if (text.starts_with("plugins: ")) text.erase(0, 9);
    problems.add({}, "plugins", text);
  }
}

}  // namespace

void open_plugins(const std::vector<std::string>& paths, Problems& problems) {
  for (const std::string& path : paths) open_plugin(path, problems);
}

// Links stay links: a new version of a library may be put in place of one.
std::vector<std::string> absolute_plugins(const std::vector<std::string>& paths) {
  std::vector<std::string> all;
  for (const std::string& path : paths) all.push_back(std::filesystem::absolute(path).lexically_normal().string());
  return all;
}

void open_plugins_of(const std::vector<ConfigSource>& sources, Problems& problems) {
  ConfigNode plugins = ConfigNode::map();
  const ConfigNode config = assemble_config(sources, problems);
  if (const ConfigNode* named = config.find("plugins")) plugins.set("plugins", *named);
  const RunConfig read = read_run_config(plugins, problems);
  if (problems.empty()) open_plugins(read.plugins, problems);
}

}  // namespace levin
