#include "levin/cli/commands/checkpoint_diff.h"

#include <cstring>
#include <filesystem>
#include <limits>
#include <map>

#include "levin/core/error.h"

namespace levin {

namespace {

std::string shown(const std::string& name) {
  return cut_text(name, 160);
}

// ---- values ------------------------------------------------------------------------------------------------------

void compare(const ConfigNode& a, const ConfigNode& b, const std::string& path, std::vector<std::string>& lines);

void compare_maps(const ConfigNode& a, const ConfigNode& b, const std::string& path, std::vector<std::string>& lines) {
  for (const auto& entry : a.entries) {
    const std::string here = join_path(path, entry.key);
    const ConfigNode* other = b.find(entry.key);
    if (other != nullptr) compare(entry.value, *other, here, lines);
    if (other == nullptr) lines.push_back("value " + shown(here) + ": only in the first, " + entry.value.shown());
  }
  for (const auto& entry : b.entries) {
    if (a.find(entry.key) != nullptr) continue;
    lines.push_back("value " + shown(join_path(path, entry.key)) + ": only in the second, " + entry.value.shown());
  }
}

void compare(const ConfigNode& a, const ConfigNode& b, const std::string& path, std::vector<std::string>& lines) {
  if (a.same_as(b)) return;
  if (a.is_map() && b.is_map()) return compare_maps(a, b, path, lines);
  if (a.is_list() && b.is_list() && a.items.size() == b.items.size()) {
    for (size_t i = 0; i < a.items.size(); ++i) {
      compare(a.items[i], b.items[i], path + "[" + std::to_string(i) + "]", lines);
    }
    return;
  }
  const auto text = [](const ConfigNode& node) {
    return node.is_list() ? "a list of " + std::to_string(node.items.size()) : node.shown();
  };
  lines.push_back("value " + shown(path) + ": " + text(a) + " and " + text(b));
}

// The run's folder of a folder of checkpoints: usually that is its folder "checkpoints".
std::string run_folder_of(const std::filesystem::path& checkpoints) {
  std::filesystem::path folder = checkpoints.lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  return (folder.filename() == "checkpoints" ? folder.parent_path() : folder).string();
}

// Where the file is, and where its callbacks wrote it, if it was moved since.
std::vector<std::string> run_folders(const CheckpointFile& file) {
  std::error_code code;
  const auto path = std::filesystem::absolute(file.file().path(), code);
  std::vector<std::string> folders = {run_folder_of(path.parent_path())};
  const ConfigNode* callbacks = file.values().find("callbacks");
  if (callbacks == nullptr || !callbacks->is_map()) return folders;
  for (const auto& callback : callbacks->entries) {
    const ConfigNode* dirpath = callback.value.find("dirpath");
    if (dirpath != nullptr && dirpath->is_scalar() && dirpath->text.starts_with('/')) {
      folders.push_back(run_folder_of(dirpath->text));
    }
  }
  return folders;
}

std::string from_run_folder(const std::string& text, const std::vector<std::string>& folders) {
  for (const auto& folder : folders) {
    const bool is_below = text.starts_with(folder) && (text.size() == folder.size() || text[folder.size()] == '/');
    if (is_below && folder.size() > 1) return "RUN" + text.substr(folder.size());
  }
  return text;
}

// Paths below the run's folder, among values and keys, as paths from there.
void shorten_paths(ConfigNode& node, const std::vector<std::string>& folders) {
  node.text = from_run_folder(node.text, folders);
  for (auto& item : node.items) shorten_paths(item, folders);
  for (auto& entry : node.entries) {
    entry.key = from_run_folder(entry.key, folders);
    shorten_paths(entry.value, folders);
  }
}

// Values of a checkpoint; another program's metadata.
ConfigNode values_of(const CheckpointFile& file) {
  if (file.is_checkpoint()) {
    ConfigNode values = file.values();
    shorten_paths(values, run_folders(file));
    return values;
  }
  ConfigNode values = ConfigNode::map();
  for (const auto& [key, value] : file.file().metadata())
    values.set("metadata." + key, ConfigNode::scalar(value, true));
  return values;
}

// ---- tensors -----------------------------------------------------------------------------------------------------

std::string kind_text(const SafetensorsEntry& entry) {
  return std::string(safetensors_dtype(entry.dtype)) + " " + shape_text(entry.shape);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() &&
         (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

// The number of differing elements, and the largest difference. Both tensors have the same shape.
std::string largest_difference(const at::Tensor& a, const at::Tensor& b) {
  const auto wide = a.is_complex() || b.is_complex() ? at::kComplexDouble : at::kDouble;
  // int64 has no wider type: its differences may wrap.
  const bool whole = a.scalar_type() == at::kLong && b.scalar_type() == at::kLong;
  const at::Tensor x = whole ? a : a.to(wide), y = whole ? b : b.to(wide);
  const at::Tensor both_nan = x.isnan().logical_and(y.isnan());
  const auto numbers = x.ne(y).logical_and(both_nan.logical_not()).sum().item<int64_t>();
  if (numbers == 0 && a.scalar_type() != b.scalar_type()) return "the same numbers";
  if (numbers == 0) return "the numbers are equal, their bits differ (-0.0, NaN)";
  const auto one_sided = x.isnan().logical_xor(y.isnan()).sum().item<int64_t>();
  // NaN where a side has it, or where both are the same infinity: neither is a distance.
  const at::Tensor difference = x.sub(y).abs().to(at::kDouble).nan_to_num(0.0, std::numeric_limits<double>::infinity());
  const auto largest = difference.max().item<double>();
  return "largest difference " + number_text(largest) + ", " + std::to_string(numbers) + " of " +
         std::to_string(a.numel()) + " differ" +
         (one_sided == 0 ? "" : ", NaN on one side in " + std::to_string(one_sided));
}

std::map<std::string, const SafetensorsEntry*> by_name(const CheckpointFile& file) {
  std::map<std::string, const SafetensorsEntry*> entries;
  for (const auto& entry : file.file().entries()) entries[entry.name] = &entry;
  return entries;
}

void compare_tensors(const CheckpointFile& a, const CheckpointFile& b, std::vector<std::string>& lines) {
  const auto first = by_name(a), second = by_name(b);
  for (const auto& [name, entry] : first) {
    const std::string tensor = "tensor " + shown(name) + ": ";
    const auto found = second.find(name);
    if (found == second.end()) {
      lines.push_back(tensor + "only in the first, " + kind_text(*entry));
      continue;
    }
    const at::Tensor x = a.read(*entry), y = b.read(*found->second);
    const bool same_kind = kind_text(*entry) == kind_text(*found->second);
    if (same_kind && same_bits(x, y)) continue;
    std::string what = same_kind ? kind_text(*entry) : kind_text(*entry) + " and " + kind_text(*found->second);
    if (entry->shape == found->second->shape && x.numel() > 0) what += ", " + largest_difference(x, y);
    lines.push_back(tensor + what);
  }
  for (const auto& [name, entry] : second) {
    if (!first.contains(name)) lines.push_back("tensor " + shown(name) + ": only in the second, " + kind_text(*entry));
  }
}

}  // namespace

std::vector<std::string> checkpoint_differences(const CheckpointFile& a, const CheckpointFile& b, Compared compared) {
  std::vector<std::string> lines;
  if (compared == Compared::everything) compare(values_of(a), values_of(b), "", lines);
  compare_tensors(a, b, lines);
  return lines;
}

}  // namespace levin
