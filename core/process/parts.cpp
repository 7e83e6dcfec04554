#include "levin/core/process/parts.h"

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>

#include "levin/core/options/error.h"
#include "levin/core/options/registry.h"
#include "levin/core/process/shared_library.h"

namespace levin {

namespace {

using OpenedParts = std::map<std::string, std::unique_ptr<SharedLibrary>>;

OpenedParts& opened_parts() {
  static auto* all = new OpenedParts;  // never destroyed: the libraries stay open
  return *all;
}

struct Adding {
  Adding() { detail::part_is_adding = true; }
  ~Adding() { detail::part_is_adding = false; }
  Adding(const Adding&) = delete;
  Adding& operator=(const Adding&) = delete;
};

std::string path_of(const std::string& part) {
  const std::string folder = folder_of_code(reinterpret_cast<const void*>(&component_version));
  return folder + "/liblevin_" + part + ".so." + LEVIN_SOVERSION;
}

std::string how_to_get(const std::string& part) {
  std::string option = part;
  for (char& c : option) c = static_cast<char>(c - 'a' + 'A');
  return "Build it with -DLEVIN_" + option + "=ON, or install the package levin-" + part + ".";
}

}  // namespace

const char* component_version() {
  return LEVIN_COMPONENT_VERSION;
}

void check_component_version(const std::string& library, const std::string& version) {
  const std::string own = component_version();
  if (own == version) return;
  throw ConfigError(library + " was built for " + version + ", and this is " + own +
                    ". Build or install both together.");
}

const std::vector<PartClass>& part_classes() {
  static const std::vector<PartClass> all{
      {"arrays", "data module", "Hdf5Data"},        {"arrays", "data module", "NpyData"},
      {"downloads", "data module", "FashionMnist"}, {"downloads", "data module", "Mnist"},
      {"images", "data module", "ImageFolderData"}, {"models", "callback", "LoRA"},
      {"models", "model", "CompiledModule"},        {"models", "model", "ExportedModule"},
      {"models", "model", "HuggingFaceClassifier"}, {"models", "model", "HuggingFaceLM"},
      {"models", "model", "TabularModel"},          {"streams", "data module", "StreamData"},
      {"text", "data module", "TextCsv"},           {"text", "data module", "TextFile"},
      {"text", "data module", "TokenFileData"},     {"tracking", "logger", "MLFlowLogger"},
      {"tracking", "logger", "PrometheusLogger"},   {"tracking", "logger", "SQLiteLogger"},
  };
  return all;
}

const SharedLibrary& open_part(const std::string& part, const std::string& who) {
  const std::lock_guard lock(detail::registry_mutex());
  OpenedParts& opened = opened_parts();
  if (const auto library = opened.find(part); library != opened.end()) return *library->second;
  const std::string path = path_of(part);
  std::error_code failed;
  if (!std::filesystem::exists(path, failed)) {
    throw ConfigError(who + " is in the part levin_" + part + ", which this Levin does not have (there is no " + path +
                      "). " + how_to_get(part));
  }
  auto library =
      std::make_unique<SharedLibrary>(path, who, "It is in the part levin_" + part + ". " + how_to_get(part));
  const char* (*open)(const char* core) = nullptr;
  library->find(open, ("levin_open_" + part).c_str());
  library->keep();
  {
    const Adding adding;
    check_component_version(path, open(component_version()));
  }
  return *(opened[part] = std::move(library));
}

std::string open_part_with(const std::string& kind, const std::string& name) {
  for (const PartClass& each : part_classes()) {
    if (each.kind != kind || (each.name != name && !name.empty())) continue;
    try {
      (void)open_part(each.part, each.name);
    } catch (const Error& error) {
      if (!name.empty()) return error.what();
    }
  }
  return "";
}

}  // namespace levin
