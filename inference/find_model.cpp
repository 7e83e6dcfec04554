#include "levin/inference/find_model.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/sharded_checkpoint.h"
#include "levin/checkpoint/sharded_record.h"
#include "levin/checkpoint/strict_json.h"
#include "levin/core/console.h"
#include "levin/core/files.h"
#include "levin/core/json_depth.h"

namespace levin {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kHuggingFaceConfig = "config.json";
constexpr const char* kAdapterConfig = "adapter_config.json";
constexpr uint64_t kMostRecordBytes = 64 << 20;

bool is_there(const fs::path& path) {
  std::error_code code;
  return fs::exists(path, code);
}

bool is_folder(const fs::path& path) {
  std::error_code code;
  return fs::is_directory(path, code);
}

std::string text_of(const Json& node, const char* key) {
  const auto found = node.is_object() ? node.find(key) : node.end();
  return found != node.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// run.json, or null: what cannot be read counts as absent, because the checkpoints are there all the same.
Json read_record(const fs::path& folder) {
  try {
    return parse_json(read_file((folder / "run.json").string(), kMostRecordBytes));
  } catch (const std::exception&) {
    return {};
  }
}

Json part_of(const Json& record, const char* key) {
  return record.is_object() && record.contains(key) ? record[key] : Json();
}

// The checkpoints directly in a folder, sorted. A link that leads nowhere is none.
std::vector<fs::path> checkpoints_in(const fs::path& folder) {
  std::set<fs::path> found;
  std::error_code code;
  for (fs::directory_iterator entry(folder, code); !code && entry != fs::directory_iterator(); entry.increment(code)) {
    if (entry->path().extension() == ".ckpt" && is_there(entry->path())) found.insert(entry->path());
  }
  return {found.begin(), found.end()};
}

// The steps it was trained for, and whether it is last.ckpt: of the checkpoints of one step that was written last.
using Age = std::pair<int64_t, bool>;

std::string newest_of(const std::vector<fs::path>& checkpoints) {
  std::string newest;
  Age age{-1, false};
  for (const fs::path& path : checkpoints) {
    try {
      State values;
      values.values = load_checkpoint_values(path.string());
      const Age its{values.get<int64_t>("global_step"), path.filename().string().starts_with("last")};
      if (its > age) {
        age = its;
        newest = path.string();
      }
    } catch (const CheckpointError& error) {
      Console::instance().warn("load_for_inference: " + std::string(error.what()) + " It is left alone.");
    }
  }
  return newest;
}

std::string best_of(const fs::path& folder, const Json& record) {
  const std::string name = text_of(part_of(record, "monitor"), "best_path");
  if (name.empty()) return "";
  const fs::path path = folder / name;  // an absolute name stays as it is
  if (is_there(path)) return path.string();
  throw CheckpointError("load_for_inference: " + folder.string() + ": run.json says that " + name +
                        " is its best checkpoint, and it does not exist. Give the path of another, or checkpoint: last "
                        "for the newest.");
}

// A run's checkpoints are in the folder "checkpoints", and wherever the record says.
std::vector<fs::path> all_checkpoints(const fs::path& folder, const Json& record) {
  std::set<fs::path> folders{folder, folder / "checkpoints"};
  const Json listed = part_of(record, "checkpoints");
  if (listed.is_array()) {
    for (const Json& one : listed) folders.insert((folder / text_of(one, "path")).parent_path());
  }
  std::vector<fs::path> all;
  for (const fs::path& each : folders) {
    for (const fs::path& path : checkpoints_in(each)) all.push_back(path);
  }
  return all;
}

// The model that an adapter's folder names, which may be a folder beside this process or one in the Hugging Face's hub.
FoundModel base_of(const std::string& adapter) {
  const std::string file = (fs::path(adapter) / kAdapterConfig).string();
  const Json config =
      detail::naming_file(file, [&] { return detail::parse_strictly<Json>(read_file(file, kMostRecordBytes)); });
  const std::string base = text_of(config, "base_model_name_or_path");
  if (!base.empty() && is_there(fs::path(base) / kHuggingFaceConfig)) return {base, true, adapter};
  throw CheckpointError("load_for_inference: " + adapter + " is an adapter, and " +
                        (base.empty()
                             ? "its adapter_config.json does not name its base model"
                             : "its base model \"" + cut_text(base) + "\" is no folder with a config.json here") +
                        ". Give the path of the base model, and this folder as adapter in InferenceOptions.");
}

// A save of several ranks that has no record.
bool holds_shards(const fs::path& folder) {
  std::error_code code;
  for (fs::directory_iterator entry(folder, code); !code && entry != fs::directory_iterator(); entry.increment(code)) {
    if (is_shard_name(entry->path().filename().string())) return true;
  }
  return false;
}

}  // namespace

FoundModel find_model(const std::string& path, WhichCheckpoint which) {
  if (!is_there(path)) {
    throw CheckpointError("load_for_inference: there is no file or folder " + path +
                          ". Give a checkpoint, a run's folder, or a folder of Hugging Face's.");
  }
  if (!is_folder(path)) return {path};
  if (is_sharded_checkpoint(path)) return {path};
  if (holds_shards(path)) (void)sharded_record(path);  // throws
  const Json record = read_record(path);
  std::string found = which == WhichCheckpoint::best ? best_of(path, record) : "";
  if (found.empty()) found = newest_of(all_checkpoints(path, record));
  if (!found.empty()) return {found};
  if (is_there(fs::path(path) / kHuggingFaceConfig)) return {path, true};
  if (is_there(fs::path(path) / kAdapterConfig)) return base_of(path);
  throw CheckpointError("load_for_inference: " + path +
                        " holds no checkpoint that can be read (*.ckpt, also in its folder checkpoints), and no "
                        "config.json of Hugging Face's.");
}

}  // namespace levin
