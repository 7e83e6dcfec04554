// The record is not trusted: the shards' headers are checked before anything is allocated, so that the parts of a
// tensor fill it exactly once.
#include "levin/checkpoint/sharded_reader.h"

#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "levin/checkpoint/sharded_checkpoint.h"
#include "levin/core/options/error.h"
#include "levin/core/tensors.h"

namespace levin {

namespace {

[[noreturn]] void bad_record(const std::string& path, const std::string& what) {
  throw CheckpointError(path + ": " + what + ".");
}

// Directly from the entry: looking each up by its key would take quadratic time.
template <class Entry>
Layout layout_of(const Entry& entry) {
  Layout layout;
  Problems problems;
  if (ValueType<Layout>::read(entry.value, layout, entry.key, problems)) return layout;
  throw CheckpointError("saved state: " + problems.lines()[0]);
}

void check_shard_names(const std::string& path, const std::vector<ShardFile>& shards) {
  std::set<std::string> seen;
  for (const ShardFile& shard : shards) {
    if (!is_shard_name(shard.file)) {
      bad_record(path,
                 "\"" + cut_text(shard.file) + "\" is not the name of a shard, which is a file in the same folder");
    }
    if (!seen.insert(shard.file).second) bad_record(path, "the shard " + cut_text(shard.file) + " is named twice");
  }
}

}  // namespace

bool is_shard_name(const std::string& name) {
  const auto is_odd = [](char c) { return c == '/' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  return name.starts_with("shard-") && name.ends_with(".safetensors") && std::none_of(name.begin(), name.end(), is_odd);
}

std::string header_checksum_of(const CheckpointFile& shard) {
  return shard.file().metadata().at("levin.checksum");
}

ShardedRecord read_sharded_record(const std::string& path) {
  const CheckpointFile file(path);
  ShardedRecord record;
  State values;
  values.values = file.values();
  try {
    const State sharded = values.part("sharded");
    const auto layouts = sharded.get<ConfigNode>("layout");
    for (const auto& entry : layouts.entries) record.layout[entry.key] = layout_of(entry);
    record.shards = sharded.get<std::vector<ShardFile>>("shards");
  } catch (const CheckpointError& error) {
    throw CheckpointError(path + ": " + cut_text(error.what(), 1000));
  }
  check_shard_names(path, record.shards);
  for (const auto& [key, layout] : record.layout) {
    if (layout.begins.size() == record.shards.size()) continue;
    bad_record(path, "the layout of \"" + cut_text(key) + "\" is wrong: it has places for " +
                         std::to_string(layout.begins.size()) + " of " + count_of(record.shards.size(), "shard"));
  }
  for (const auto& entry : values.values.entries) {
    if (entry.key != "sharded") record.values.set(entry.key, entry.value);
  }
  return record;
}

std::optional<std::set<std::string>> committed_files(const std::string& folder) {
  std::set<std::string> files;
  if (!is_sharded_checkpoint(folder)) return files;
  try {
    for (const ShardFile& shard : read_sharded_record(sharded_record(folder)).shards) files.insert(shard.file);
  } catch (const CheckpointError&) {
    return std::nullopt;
  }
  return files;
}

ShardedReader::ShardedReader(const std::string& folder)
    : folder_(folder), path_(sharded_record(folder)), record_(read_sharded_record(path_)) {
  collect_parts();
  for (const auto& [key, layout] : record_.layout) check_parts(key, tensors_[key]);
}

std::string ShardedReader::shard_path(size_t rank) const {
  const std::string& name = record_.shards[rank].file;
  std::string path = (std::filesystem::path(folder_) / name).string();
  std::error_code code;
  if (std::filesystem::exists(std::filesystem::symlink_status(path, code))) return path;
  throw CheckpointError(folder_ + ": its shard " + name + " is missing. Copy it back, or use an older one.");
}

void ShardedReader::check_shard(size_t rank, const CheckpointFile& shard) const {
  const ShardFile& expected = record_.shards[rank];
  if (static_cast<int64_t>(shard.file().size()) == expected.bytes && header_checksum_of(shard) == expected.checksum) {
    return;
  }
  throw CheckpointError(folder_ + ": its shard " + expected.file +
                        " is not the one that commit.safetensors names: size or checksum differ. Copy the right one "
                        "back, or use an older checkpoint.");
}

// With the header that was checked, so that the parts' entries are its own.
const CheckpointFile& ShardedReader::open_shard(size_t rank) const {
  const std::lock_guard lock(mutex_);
  auto& shard = open_[rank];
  if (shard != nullptr) return *shard;
  auto opened = std::make_unique<CheckpointFile>(shard_path(rank));
  check_shard(rank, *opened);
  shard = std::move(opened);
  return *shard;
}

// From the headers alone; one file is open at a time.
void ShardedReader::collect_parts() {
  for (const auto& [key, layout] : record_.layout) tensors_[key].shape = layout.shape;
  for (size_t rank = 0; rank < record_.shards.size(); ++rank) {
    const CheckpointFile shard(shard_path(rank));
    check_shard(rank, shard);
    shards_bytes_ += static_cast<int64_t>(shard.file().size());
    for (const SafetensorsEntry& entry : shard.file().entries()) {
      const int64_t size = c10::multiply_integers(entry.shape);
      const auto layout = record_.layout.find(entry.name);
      Tensor& tensor = tensors_[entry.name];
      if (layout != record_.layout.end()) {
        tensor.parts.push_back({rank, layout->second.begins[rank], size, entry});
      } else if (tensor.parts.empty()) {
        tensor = {entry.dtype, entry.shape, {{rank, 0, size, entry}}};
      }
    }
  }
}

// No larger than the shards' contents, strides included, where a size of 0 counts as 1.
void ShardedReader::check_shape(const std::string& key, const std::vector<int64_t>& shape) const {
  constexpr size_t most_dims = 64;  // as LibTorch
  const std::string what = "the layout of \"" + cut_text(key) + "\" is wrong: ";
  if (shape.size() > most_dims) {
    bad_record(path_, what + count_of(shape.size(), "dimension") + " are more than LibTorch has");
  }
  int64_t strides = 1;
  for (const int64_t dim : shape) {
    if (dim >= 0 && strides <= shards_bytes_ / std::max<int64_t>(dim, 1)) {
      strides *= std::max<int64_t>(dim, 1);
    } else {
      bad_record(path_, what + shape_text(shape) + " is more than the shards hold");
    }
  }
}

// Checks that the parts fill the whole exactly once.
void ShardedReader::check_parts(const std::string& key, Tensor& tensor) {
  check_shape(key, tensor.shape);
  const int64_t size = c10::multiply_integers(tensor.shape);
  std::vector<Part>& parts = tensor.parts;
  std::sort(parts.begin(), parts.end(),
            [](const Part& a, const Part& b) { return std::pair(a.begin, a.size) < std::pair(b.begin, b.size); });
  if (!parts.empty()) tensor.dtype = parts[0].entry.dtype;
  const std::string name = "\"" + cut_text(key) + "\"";
  int64_t filled = 0;
  for (const Part& part : parts) {
    if (part.begin < 0 || part.size > size || part.begin > size - part.size || part.entry.dtype != tensor.dtype) {
      bad_record(path_, "rank " + std::to_string(part.rank) + "'s part of " + name + " does not fit into " +
                            shape_text(tensor.shape) + ": the layout is wrong");
    }
    if (part.begin != filled) {
      bad_record(path_, "the parts of " + name + (part.begin < filled ? " overlap" : " leave a gap") + " at number " +
                            std::to_string(std::min(part.begin, filled)) + ": the layout is wrong");
    }
    filled += part.size;
  }
  if (filled != size) {
    bad_record(path_,
               "the shards hold " + std::to_string(filled) + " of the " + count_of(size, "number") + " of " + name);
  }
}

at::Tensor ShardedReader::read(const std::string& name) const {
  const Tensor& tensor = tensors_.at(name);
  if (!record_.layout.contains(name)) {
    const Part& part = tensor.parts.front();
    return open_shard(part.rank).read(part.entry);
  }
  at::Tensor whole = at::empty(tensor.shape, at::TensorOptions(tensor.dtype));
  for (const Part& part : tensor.parts) {
    whole.view({-1}).narrow(0, part.begin, part.size).copy_(open_shard(part.rank).read(part.entry).reshape({-1}));
  }
  return whole;
}

State ShardedReader::read_all() const {
  State whole;
  whole.values = record_.values;
  for (size_t rank = 0; rank < record_.shards.size(); ++rank) {
    const CheckpointFile shard(shard_path(rank));
    check_shard(rank, shard);  // so it has the header that was checked
    for (const SafetensorsEntry& entry : shard.file().entries()) {
      const at::Tensor part = shard.read(entry);
      const auto layout = record_.layout.find(entry.name);
      if (layout == record_.layout.end()) {
        whole.tensors.emplace(entry.name, part);
        continue;
      }
      at::Tensor& tensor = whole.tensors[entry.name];
      if (!tensor.defined()) tensor = at::empty(layout->second.shape, part.options());
      tensor.view({-1}).narrow(0, layout->second.begins[rank], part.numel()).copy_(part.reshape({-1}));
    }
  }
  return whole;
}

State read_sharded_checkpoint(const std::string& folder) {
  return ShardedReader(folder).read_all();
}

}  // namespace levin
