#include "levin/cli/commands/checkpoint_diff.h"

#include <cstring>
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

// Values of a checkpoint; another program's metadata.
ConfigNode values_of(const CheckpointFile& file) {
  if (file.is_checkpoint()) return file.values();
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

std::vector<std::string> checkpoint_differences(const CheckpointFile& a, const CheckpointFile& b) {
  std::vector<std::string> lines;
  compare(values_of(a), values_of(b), "", lines);
  compare_tensors(a, b, lines);
  return lines;
}

}  // namespace levin
