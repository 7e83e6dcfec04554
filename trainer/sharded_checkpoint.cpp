#include "levin/trainer/sharded_checkpoint.h"

#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "levin/core/fields.h"
#include "levin/core/files.h"
#include "levin/core/tensor_text.h"
#include "levin/trainer/checkpoint_file.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

constexpr const char* kRecord = "commit.safetensors";
constexpr const char* kFailed = ".failed";  // beside where the shard would be: why it is not
constexpr std::chrono::milliseconds kPause(20);

struct ShardFile {
  std::string file;
  int64_t bytes = 0;
  std::string checksum;  // of its header, which holds those of its tensors

  static auto fields() {
    return levin::fields(field("file", &ShardFile::file, "name in the folder"),
                         field("bytes", &ShardFile::bytes, "its size"),
                         field("checksum", &ShardFile::checksum, "XXH3 of its header"));
  }
};

struct Piece {
  int64_t begin = 0;
  std::vector<int64_t> shape;

  static auto fields() {
    return levin::fields(field("begin", &Piece::begin, "first number, of the whole laid flat"),
                         field("shape", &Piece::shape, "of the whole"));
  }
};

struct Layout {
  std::vector<int64_t> shape;
  std::vector<int64_t> begins;  // by rank; -1: it has nothing of it

  static auto fields() {
    return levin::fields(field("shape", &Layout::shape, "of the whole"),
                         field("begins", &Layout::begins, "by rank: first number of its part; -1: none"));
  }
};

std::string shard_name(const ShardPlace& place, int64_t rank) {
  return "shard-" + std::to_string(rank) + "-of-" + std::to_string(place.world_size) + "." + place.save +
         ".safetensors";
}

std::string in_folder(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / name).string();
}

std::string header_checksum_of(const CheckpointFile& shard) {
  return shard.file().metadata().at("levin.checksum");
}

bool belongs_to_checkpoint(const std::string& name) {
  return name == kRecord || name.starts_with("shard-") || name.starts_with(std::string(kRecord) + ".tmp-");
}

void remove_quietly(const std::string& path) {
  std::error_code code;
  fs::remove(path, code);
}

// ---- writing -----------------------------------------------------------------------------------------------------

// Rank 0's own values go into the record: a shard says where its parts lie, and no more.
State shard_of(const State& state) {
  State shard;
  shard.tensors = state.tensors;
  shard.values.set("parts", state.has("parts") ? *state.values.find("parts") : ConfigNode::map());
  return shard;
}

void write_shard(const std::string& folder, const State& state, const ShardPlace& place) {
  const std::string path = in_folder(folder, shard_name(place, place.rank));
  try {
    make_folder(folder);
    write_checkpoint(path, shard_of(state));
  } catch (const Error& error) {
    try {
      write_file_durably(path + kFailed, error.what());  // so that rank 0 need not wait in vain
    } catch (const Error&) {
      // Then it waits.
    }
    throw;
  }
}

void await_shards(const std::string& folder, const ShardPlace& place, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (int64_t rank = 0; rank < place.world_size; ++rank) {
    const std::string path = in_folder(folder, shard_name(place, rank));
    while (!fs::exists(path)) {
      if (fs::exists(path + kFailed)) {
        throw CheckpointError("saving checkpoint " + folder + ": rank " + std::to_string(rank) +
                              " could not write its shard: " + read_file(path + kFailed, 10000));
      }
      if (std::chrono::steady_clock::now() > deadline) {
        throw CheckpointError("saving checkpoint " + folder + ": " + shard_name(place, rank) + " of rank " +
                              std::to_string(rank) + " was not there within " +
                              std::to_string(patience.count() / 1000) +
                              " s. Do all ranks see the same folder, and does that rank run?");
      }
      std::this_thread::sleep_for(kPause);
    }
  }
}

void write_record(const std::string& folder, const State& state, const ShardPlace& place) {
  std::vector<ShardFile> shards;
  std::map<std::string, Layout> layout;
  for (int64_t rank = 0; rank < place.world_size; ++rank) {
    const CheckpointFile shard(in_folder(folder, shard_name(place, rank)));
    shards.push_back({shard_name(place, rank), static_cast<int64_t>(shard.file().size()), header_checksum_of(shard)});
    State values;
    values.values = shard.values();
    State parts;
    parts.values = values.get<ConfigNode>("parts");
    for (const auto& entry : parts.values.entries) {
      const auto piece = parts.get<Piece>(entry.key);
      Layout& of_key = layout[entry.key];
      of_key.shape = piece.shape;
      of_key.begins.resize(static_cast<size_t>(place.world_size), -1);
      of_key.begins[static_cast<size_t>(rank)] = piece.begin;
    }
  }
  State record;
  for (const auto& entry : state.values.entries) {
    if (entry.key != "parts") record.values.set(entry.key, entry.value);
  }
  State sharded;
  sharded.set("save", place.save);
  sharded.set("world_size", place.world_size);
  sharded.set("shards", shards);
  State layouts;
  for (const auto& [key, of_key] : layout) layouts.set(key, of_key);
  sharded.values.set("layout", layouts.values);
  record.values.set("sharded", sharded.values);
  write_checkpoint(in_folder(folder, kRecord), record);
}

// Of saves that the record does not name. `keep`: the files that it does.
void remove_others(const std::string& folder, const std::set<std::string>& keep) {
  std::error_code code;
  std::vector<std::string> others;
  for (const auto& entry : fs::directory_iterator(folder, code)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("shard-") && !keep.contains(name)) others.push_back(entry.path().string());
  }
  for (const std::string& path : others) remove_quietly(path);
}

}  // namespace

void write_sharded_checkpoint(const std::string& folder, const State& state, const ShardPlace& place,
                              std::chrono::milliseconds patience) {
  write_shard(folder, state, place);
  if (place.rank != 0) return;
  std::set<std::string> files;
  for (int64_t rank = 0; rank < place.world_size; ++rank) files.insert(shard_name(place, rank));
  try {
    await_shards(folder, place, patience);
    write_record(folder, state, place);
  } catch (const Error&) {
    for (const std::string& file : files) {
      remove_quietly(in_folder(folder, file));
      remove_quietly(in_folder(folder, file) + kFailed);
    }
    throw;
  }
  remove_others(folder, files);
}

// ---- reading -----------------------------------------------------------------------------------------------------

bool is_sharded_checkpoint(const std::string& path) {
  std::error_code code;
  return fs::is_directory(path, code) && fs::exists(in_folder(path, kRecord), code);
}

std::string sharded_record(const std::string& folder) {
  if (!is_sharded_checkpoint(folder)) {
    throw CheckpointError(folder + ": it is a folder without " + kRecord +
                          ", so no checkpoint: its save was never finished. Use an older one.");
  }
  return in_folder(folder, kRecord);
}

namespace {

std::string shard_path(const std::string& folder, const ShardFile& expected) {
  const std::string path = in_folder(folder, expected.file);
  if (fs::exists(path)) return path;
  throw CheckpointError(folder + ": its shard " + expected.file + " is missing. Copy it back, or use an older one.");
}

void check_shard(const std::string& folder, const ShardFile& expected, const CheckpointFile& shard) {
  if (static_cast<int64_t>(shard.file().size()) != expected.bytes || header_checksum_of(shard) != expected.checksum) {
    throw CheckpointError(folder + ": its shard " + expected.file + " is not the one that " + kRecord +
                          " names: size or checksum differ. Copy the right one back, or use an older checkpoint.");
  }
}

// Numbers of a whole; a layout that wants more than the shards can hold is not believed, and nothing is allocated.
int64_t size_of(const std::string& folder, const std::string& key, const Layout& layout, int64_t shards_bytes) {
  int64_t size = 1;
  for (const int64_t dim : layout.shape) {
    if (dim < 0 || (dim > 0 && size > shards_bytes / dim)) {
      throw CheckpointError(folder + ": the layout of \"" + cut_text(key) + "\" is wrong: " + shape_text(layout.shape) +
                            " is more than the shards hold.");
    }
    size *= dim;
  }
  return size;
}

// Where a shard's part goes in the whole.
class Assembly {
 public:
  explicit Assembly(std::string folder) : folder_(std::move(folder)) {}

  void add(const std::string& key, const Layout& layout, size_t rank, const at::Tensor& part) {
    at::Tensor& whole = state.tensors[key];
    if (!whole.defined()) whole = at::empty(layout.shape, part.options());
    const int64_t begin = rank < layout.begins.size() ? layout.begins[rank] : -1;
    if (begin < 0 || begin > whole.numel() - part.numel() || part.scalar_type() != whole.scalar_type()) {
      throw CheckpointError(folder_ + ": rank " + std::to_string(rank) + "'s part of \"" + cut_text(key) +
                            "\" does not fit into " + shape_text(whole.sizes()) + ": the layout is wrong.");
    }
    whole.view({-1}).narrow(0, begin, part.numel()).copy_(part.reshape({-1}));
    filled_[key] += part.numel();
  }

  void check_complete(const std::map<std::string, Layout>& layout) const {
    for (const auto& [key, of_key] : layout) {
      const auto found = filled_.find(key);
      const int64_t filled = found == filled_.end() ? 0 : found->second;
      const int64_t size = c10::multiply_integers(of_key.shape);
      if (filled == size) continue;
      throw CheckpointError(folder_ + ": the shards hold " + std::to_string(filled) + " of the " +
                            std::to_string(size) + " numbers of \"" + cut_text(key) + "\".");
    }
  }

  State state;

 private:
  std::string folder_;
  std::map<std::string, int64_t> filled_;
};

}  // namespace

State read_sharded_checkpoint(const std::string& folder) {
  const CheckpointFile record(sharded_record(folder));
  State values;
  values.values = record.values();
  const State sharded = values.part("sharded");
  State layouts;
  layouts.values = sharded.get<ConfigNode>("layout");
  std::map<std::string, Layout> layout;
  for (const auto& entry : layouts.values.entries) layout[entry.key] = layouts.get<Layout>(entry.key);
  const auto shards = sharded.get<std::vector<ShardFile>>("shards");
  int64_t shards_bytes = 0;
  for (const ShardFile& shard : shards) {
    shards_bytes += static_cast<int64_t>(fs::file_size(shard_path(folder, shard)));
  }
  for (const auto& [key, of_key] : layout) (void)size_of(folder, key, of_key, shards_bytes);
  Assembly assembly(folder);
  for (const auto& entry : record.values().entries) {
    if (entry.key != "sharded") assembly.state.values.set(entry.key, entry.value);
  }
  for (size_t rank = 0; rank < shards.size(); ++rank) {
    const CheckpointFile shard(shard_path(folder, shards[rank]));
    check_shard(folder, shards[rank], shard);
    for (const auto& entry : shard.file().entries()) {
      const at::Tensor tensor = shard.read(entry);
      const auto found = layout.find(entry.name);
      if (found == layout.end()) {
        assembly.state.tensors.emplace(entry.name, tensor);
      } else {
        assembly.add(entry.name, found->second, rank, tensor);
      }
    }
  }
  assembly.check_complete(layout);
  return std::move(assembly.state);
}

State load_checkpoint(const std::string& path) {
  return fs::is_directory(path) ? read_sharded_checkpoint(path) : read_checkpoint(path);
}

ConfigNode load_checkpoint_values(const std::string& path) {
  return fs::is_directory(path) ? read_checkpoint_values(sharded_record(path)) : read_checkpoint_values(path);
}

std::string remove_checkpoint(const std::string& path) {
  std::error_code code;
  if (!fs::is_directory(fs::symlink_status(path, code))) {
    fs::remove(path, code);
    return code ? code.message() : "";
  }
  fs::remove(in_folder(path, kRecord), code);
  if (code) return code.message();
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path, code)) {
    if (belongs_to_checkpoint(entry.path().filename().string())) files.push_back(entry.path());
  }
  for (const auto& file : files) fs::remove(file, code);
  fs::remove(path, code);  // stays where somebody else has put a file
  return code ? code.message() : "";
}

void remove_uncommitted(const std::string& folder) {
  std::error_code code;
  std::vector<std::string> begun;
  for (const auto& entry : fs::directory_iterator(folder, code)) {
    const std::string path = entry.path().string();
    std::error_code unreadable;
    const bool is_folder = fs::is_directory(entry.symlink_status(unreadable));
    if (is_folder && path.ends_with(".ckpt") && !is_sharded_checkpoint(path)) begun.push_back(path);
  }
  for (const std::string& path : begun) (void)remove_checkpoint(path);
}

}  // namespace levin
