#include "levin/checkpoint/weights_source.h"

#include <c10/core/ScalarType.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <filesystem>

#include "levin/checkpoint/sharded_checkpoint.h"
#include "levin/checkpoint/strict_json.h"
#include "levin/core/files/files.h"
#include "levin/core/options/error.h"

namespace levin {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexEnding = ".safetensors.index.json";
constexpr std::string_view kFileEnding = ".safetensors";
constexpr std::string_view kModel = "model.";  // of a checkpoint's tensors, the module's

std::vector<std::string> names_in(const std::string& folder, std::string_view ending) {
  std::vector<std::string> names;
  std::error_code code;
  for (fs::directory_iterator entry(folder, code); !code && entry != fs::directory_iterator(); entry.increment(code)) {
    const std::string name = entry->path().filename().string();
    if (name.ends_with(ending)) names.push_back(name);
  }
  if (code) throw CheckpointError("weights " + folder + ": cannot be read: " + code.message() + ".");
  std::sort(names.begin(), names.end());
  return names;
}

// What is to be done with the pickles of a folder that transformers wrote long ago.
std::string how_to_convert(const std::string& folder, const std::vector<std::string>& pickles) {
  if (pickles.size() > 1) {
    return "Load the model in transformers and write it again (save_pretrained), which gives safetensors.";
  }
  const auto in_folder = [&](const std::string& name) { return (fs::path(folder) / name).string(); };
  return "Convert it: python3 tools/convert_checkpoint.py " + in_folder(pickles[0]) + " " +
         in_folder("model.safetensors");
}

// Hugging Face's order: model.safetensors, then its index; other programs have other names, but one of a kind.
std::string file_in(const std::string& folder) {
  const auto files = names_in(folder, kFileEnding), indices = names_in(folder, kIndexEnding);
  const auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  std::string name;
  if (has(files, "model.safetensors")) {
    name = "model.safetensors";
  } else if (has(indices, "model.safetensors.index.json")) {
    name = "model.safetensors.index.json";
  } else if (indices.size() == 1) {
    name = indices[0];
  } else if (indices.empty() && files.size() == 1) {
    name = files[0];
  } else {
    auto pickles = names_in(folder, ".bin");
    std::erase_if(pickles, [](const std::string& file) { return !file.starts_with("pytorch_model"); });
    if (files.empty() && indices.empty() && !pickles.empty()) {
      throw CheckpointError("weights " + folder + ": the folder holds " + join(pickles) +
                            ", a pickle of Python, and no *.safetensors. " + how_to_convert(folder, pickles));
    }
    throw CheckpointError(
        "weights " + folder + ": the folder holds " +
        (files.empty() && indices.empty()
             ? "no *.safetensors and no *.safetensors.index.json. Give the folder that does, or a file."
             : "several: " + join(indices.empty() ? files : indices) + ". Name one of them."));
  }
  return (fs::path(folder) / name).string();
}

// A shard's name comes from a downloaded file and must not point out of its folder. (A link in the folder may: so do
// Hugging Face's caches keep their files.)
void check_shard_name(const std::string& name) {
  const fs::path path(name);
  const bool climbs = std::find(path.begin(), path.end(), fs::path("..")) != path.end();
  if (!name.empty() && name.find('\0') == std::string::npos && !path.is_absolute() && !climbs) return;
  throw CheckpointError("its shard \"" + cut_text(name) + "\" is not a file inside the index's folder");
}

// Tensor to shard.
std::map<std::string, std::string> read_index(const std::string& path) {
  const std::string text = read_file(path, kMaxSafetensorsHeaderBytes);
  const auto index = detail::parse_strictly<nlohmann::json>(text);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    throw CheckpointError("it has no map \"weight_map\" from tensors to files");
  }
  std::map<std::string, std::string> shards;
  for (const auto& [name, shard] : index["weight_map"].items()) {
    if (!shard.is_string()) throw CheckpointError("weight_map: tensor \"" + cut_text(name) + "\" has no file's name");
    shards[name] = shard.get<std::string>();
    check_shard_name(shards[name]);
  }
  return shards;
}

WeightsSource::Tensor tensor_of(const CheckpointFile& file, const SafetensorsEntry& entry) {
  return {entry.shape, entry.bytes(), [&file, &entry] { return file.read(entry); }};
}

}  // namespace

WeightsSource::WeightsSource(const std::string& path) {
  std::error_code code;
  if (!fs::exists(path, code))
    throw CheckpointError("cannot read weights: there is no file or folder " + cut_text(path, 300) + ".");
  const bool is_sharded = is_sharded_checkpoint(path);
  const std::string file = !is_sharded && fs::is_directory(path, code) ? file_in(path) : path;
  if (is_sharded) {
    add_sharded(path);
  } else if (file.ends_with(".json")) {
    add_index(file);
  } else {
    add_file(file);
  }
}

const CheckpointFile& WeightsSource::open(const std::string& path) {
  files_.push_back(std::make_unique<CheckpointFile>(path, CheckpointFile::Accept::any_safetensors));
  return *files_.back();
}

void WeightsSource::add_file(const std::string& path) {
  const CheckpointFile& file = open(path);
  for (const auto& entry : file.file().entries()) {
    if (file.is_checkpoint() && !entry.name.starts_with(kModel)) continue;
    tensors_[entry.name.substr(file.is_checkpoint() ? kModel.size() : 0)] = tensor_of(file, entry);
  }
}

void WeightsSource::add_sharded(const std::string& folder) {
  sharded_ = std::make_unique<ShardedReader>(folder);
  for (const auto& [name, tensor] : sharded_->tensors()) {
    if (!name.starts_with(kModel)) continue;
    const auto numbers = static_cast<uint64_t>(c10::multiply_integers(tensor.shape));
    tensors_[name.substr(kModel.size())] = {tensor.shape, numbers * c10::elementSize(tensor.dtype),
                                            [this, name = name] { return sharded_->read(name); }};
  }
}

void WeightsSource::add_index(const std::string& path) {
  const auto shards = detail::naming_file(path, [&] { return read_index(path); });
  std::map<std::string, std::map<std::string, const SafetensorsEntry*>> entries;  // by shard and name
  std::map<std::string, const CheckpointFile*> files;
  std::vector<std::string> absent;
  for (const auto& [name, shard] : shards) {
    if (!files.contains(shard)) {
      files[shard] = &open((fs::path(path).parent_path() / shard).string());
      for (const auto& entry : files[shard]->file().entries()) entries[shard][entry.name] = &entry;
    }
    const auto entry = entries[shard].find(name);
    if (entry == entries[shard].end()) absent.push_back("\"" + cut_text(name) + "\" in " + shard);
    if (entry != entries[shard].end()) tensors_[name] = tensor_of(*files[shard], *entry->second);
  }
  if (absent.empty()) return;
  throw CheckpointError(path + ": its weight_map names tensors that do not exist: " + join(absent) + ".");
}

}  // namespace levin
