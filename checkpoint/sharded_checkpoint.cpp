#include "levin/checkpoint/sharded_checkpoint.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <deque>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/sharded_record.h"
#include "levin/core/files/files.h"
#include "levin/core/process/log.h"
#include "levin/core/process/rank_status.h"
#include "levin/core/storage/staging.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

constexpr const char* kFailed = ".failed";  // suffix of a file that says why the shard is missing
constexpr std::chrono::milliseconds kPause(20);

std::string shard_name(const ShardPlace& place, int64_t rank) {
  return "shard-" + std::to_string(rank) + "-of-" + std::to_string(place.world_size) + "." + place.save +
         ".safetensors";
}

std::string in_folder(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / name).string();
}

bool belongs_to_checkpoint(const std::string& name) {
  return name == kShardedRecordFile || name.starts_with("shard-") ||
         name.starts_with(std::string(kShardedRecordFile) + ".tmp-");
}

void remove_file(const std::string& path, std::error_code& code) {
  const NotedRemoval removal(path);
  fs::remove(path, code);
}

// Renames a file, or the folder of a sharded checkpoint.
void rename_noted(const std::string& path, const std::string& to, std::error_code& code) {
  std::deque<NotedRemoval> removals;
  if (fs::is_directory(fs::symlink_status(path, code))) {
    for (const std::string& name : names_in(path)) removals.emplace_back(in_folder(path, name));
  } else {
    removals.emplace_back(path);
  }
  fs::rename(path, to, code);
}

void remove_quietly(const std::string& path) {
  std::error_code ignored;
  remove_file(path, ignored);
}

// ---- writing -----------------------------------------------------------------------------------------------------

// Rank 0's own values go into the record: a shard only has the positions of its parts.
State shard_of(const State& state) {
  State shard;
  shard.tensors = state.tensors;
  shard.values.set("parts", state.has("parts") ? *state.values.find("parts") : ConfigNode::map());
  return shard;
}

// A link points to another checkpoint, whose files must not be replaced. (unlink, because another rank may have
// made the folder meanwhile.)
void replace_link(const std::string& folder) {
  std::error_code code;
  if (fs::is_symlink(fs::symlink_status(folder, code))) (void)::unlink(folder.c_str());
}

// Note [Checkpoints of two kinds]
// A checkpoint that replaces one of the other kind, a folder or a file, cannot do so by a rename. The older one gets
// the name last-replaced.ckpt meanwhile, by which a run that is killed now finds it.
std::string name_aside(const std::string& path) {
  const fs::path whole(path);
  return (whole.parent_path() / (whole.stem().string() + "-replaced.ckpt")).string();
}

// Several ranks do this at once. The file gets a second name and loses its first, because a rename would also move the
// folder that another rank has made. If it cannot be set aside, it stays, and the save fails.
void set_file_aside(const std::string& folder) {
  std::error_code code, ignored;
  if (!fs::is_regular_file(fs::symlink_status(folder, ignored))) return;
  const std::string aside = name_aside(folder), own = temporary_name(aside);
  if (::link(folder.c_str(), own.c_str()) != 0) fs::copy_file(folder, own, code);  // not every file system has links
  if (!code && fs::is_directory(aside, ignored)) (void)remove_checkpoint(aside);   // of a save that was killed
  if (!code) fs::rename(own, aside, code);
  remove_quietly(own);  // a rename to another name of the same file leaves it
  if (!code) (void)::unlink(folder.c_str());
}

void put_file_back(const std::string& folder) {
  std::error_code code;
  if (!fs::is_regular_file(name_aside(folder), code)) return;
  if (::rmdir(folder.c_str()) == 0 || errno == ENOENT) rename_noted(name_aside(folder), folder, code);
}

void write_shard(const std::string& folder, const State& state, const ShardPlace& place) {
  const SaveInProgress saving;
  const std::string path = in_folder(folder, shard_name(place, place.rank));
  try {
    replace_link(folder);
    set_file_aside(folder);
    make_folder(folder);
    hold_shard(write_checkpoint(path, shard_of(state)));
  } catch (const Error& error) {
    try {
      write_file_durably(path + kFailed, error.what());  // so that rank 0 does not wait for the shard
    } catch (const Error&) {
      // Then it waits.
    }
    throw;
  }
}

// Not a save in progress: the missing rank may have ended, or hang.
void await_shards(const std::string& folder, const ShardPlace& place, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (int64_t rank = 0; rank < place.world_size; ++rank) {
    const std::string path = in_folder(folder, shard_name(place, rank));
    std::error_code code;
    while (!fs::exists(path, code)) {
      if (fs::exists(path + kFailed, code)) {
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
  const SaveInProgress saving;
  std::vector<ShardFile> shards;
  std::map<std::string, Layout> layout;
  for (int64_t rank = 0; rank < place.world_size; ++rank) {
    const CheckpointFile shard(in_folder(folder, shard_name(place, rank)));
    shards.push_back({shard_name(place, rank), static_cast<int64_t>(shard.file().size()), header_checksum_of(shard)});
    State values;
    values.values = shard.values();
    for (const auto& [key, piece] : values.get<std::map<std::string, Piece>>("parts")) {
      Layout& of_key = layout[key];
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
  sharded.set("layout", layout);
  record.values.set("sharded", sharded.values);
  write_checkpoint(in_folder(folder, kShardedRecordFile), record);
}

// Files of saves that the record does not name. `keep`: the files that it names.
void remove_others(const std::string& folder, const std::set<std::string>& keep) {
  for (const std::string& name : names_in(folder)) {
    if (name.starts_with("shard-") && !keep.contains(name)) remove_quietly(in_folder(folder, name));
  }
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
    const auto committed = committed_files(folder);  // those of this save, if the record alone could not be synced
    for (const std::string& file : files) {
      if (committed && !committed->contains(file)) remove_quietly(in_folder(folder, file));
      remove_quietly(in_folder(folder, file) + kFailed);
    }
    put_file_back(folder);
    throw;
  }
  remove_others(folder, files);
  remove_quietly(name_aside(folder));
}

void write_single_checkpoint(const std::string& path, const State& state) {
  std::error_code code;
  const bool is_folder = fs::is_directory(fs::symlink_status(path, code)) && is_sharded_checkpoint(path);
  if (!is_folder) return (void)write_checkpoint(path, state);
  const std::string aside = name_aside(path);
  (void)remove_checkpoint(aside);
  rename_noted(path, aside, code);
  if (code) throw CheckpointError("saving checkpoint " + path + ": cannot rename the older one: " + code.message());
  try {
    (void)write_checkpoint(path, state);
  } catch (const Error&) {
    rename_noted(aside, path, code);
    throw;
  }
  (void)remove_checkpoint(aside);
}

// ---- reading -----------------------------------------------------------------------------------------------------

bool is_sharded_checkpoint(const std::string& path) {
  std::error_code code;
  return fs::is_directory(path, code) && fs::exists(in_folder(path, kShardedRecordFile), code);
}

std::string sharded_record(const std::string& folder) {
  if (!is_sharded_checkpoint(folder)) {
    throw CheckpointError(folder + ": it is a folder without " + kShardedRecordFile +
                          ", so no checkpoint: its save was never finished. Use an older one.");
  }
  return in_folder(folder, kShardedRecordFile);
}

State load_checkpoint(const std::string& path) {
  std::error_code code;
  const auto started = std::chrono::steady_clock::now();
  State state = fs::is_directory(path, code) ? read_sharded_checkpoint(path) : read_checkpoint(path);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - started;
  log::checkpoint.info("read {}: {} tensors in {:.2f} s", path, state.tensors.size(), took.count());
  return state;
}

std::string remove_checkpoint(const std::string& path) {
  std::error_code code;
  if (!fs::is_directory(fs::symlink_status(path, code))) {
    remove_file(path, code);
    return code ? code.message() : "";
  }
  remove_file(in_folder(path, kShardedRecordFile), code);
  if (code) return code.message();
  for (const std::string& name : names_in(path)) {
    if (belongs_to_checkpoint(name)) remove_file(in_folder(path, name), code);
  }
  fs::remove(path, code);  // stays if it is not empty
  return code ? code.message() : "";
}

}  // namespace levin
