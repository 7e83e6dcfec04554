#include "levin/inference/find_model.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/sharded_checkpoint.h"
#include "levin/core/console.h"
#include "levin/core/files.h"

namespace levin {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

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
    return Json::parse(read_file((folder / "run.json").string(), kMostRecordBytes));
  } catch (const std::exception&) {
    return {};
  }
}

Json part_of(const Json& record, const char* key) {
  return record.is_object() && record.contains(key) ? record[key] : Json();
}

[[noreturn]] void refuse_shards(const std::string& path) {
  throw CheckpointError("load_for_inference: " + path +
                        " is a sharded checkpoint. Merge it into one file first: levin checkpoint consolidate " + path +
                        " model.ckpt");
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
  std::string sharded;
  Age age{-1, false};
  for (const fs::path& path : checkpoints) {
    if (is_folder(path)) {
      if (is_sharded_checkpoint(path.string())) sharded = path.string();
      continue;
    }
    try {
      State values;
      values.values = read_checkpoint_values(path.string());
      const Age its{values.get<int64_t>("global_step"), path.filename().string().starts_with("last")};
      if (its > age) {
        age = its;
        newest = path.string();
      }
    } catch (const CheckpointError& error) {
      Console::instance().warn("load_for_inference: " + std::string(error.what()) + " It is left alone.");
    }
  }
  if (newest.empty() && !sharded.empty()) refuse_shards(sharded);
  return newest;
}

std::string best_of(const fs::path& folder, const Json& record) {
  const std::string name = text_of(part_of(record, "monitor"), "best_path");
  if (name.empty()) return "";
  const fs::path path = folder / name;  // an absolute name stays as it is
  if (is_folder(path)) refuse_shards(path.string());
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

}  // namespace

FoundModel find_model(const std::string& path, WhichCheckpoint which) {
  if (!is_there(path)) {
    throw CheckpointError("load_for_inference: there is no file or folder " + path +
                          ". Give a checkpoint, a run's folder, or a folder of Hugging Face's.");
  }
  if (!is_folder(path)) return {path};
  if (is_sharded_checkpoint(path)) refuse_shards(path);
  const Json record = read_record(path);
  std::string found = which == WhichCheckpoint::best ? best_of(path, record) : "";
  if (found.empty()) found = newest_of(all_checkpoints(path, record));
  if (!found.empty()) return {found};
  if (is_there(fs::path(path) / "config.json")) return {path, true};
  throw CheckpointError("load_for_inference: " + path +
                        " holds no checkpoint that can be read (*.ckpt, also in its folder checkpoints), and no "
                        "config.json of Hugging Face's.");
}

}  // namespace levin
