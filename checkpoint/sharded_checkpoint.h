// A checkpoint that several ranks write together: a folder NAME.ckpt with one safetensors file per rank and one commit
// record. Each rank writes its own parts, durably; when all are on the disk rank 0 writes the record, which says which
// files belong together. A folder without a record is no checkpoint. A save over an older one writes files of new
// names first, and those of the older are removed after the record is in place: at any time there is the old or the
// new.
//
//   NAME.ckpt/shard-0-of-2.6a21c3.safetensors   its values say where its parts lie: parts: {KEY: {begin, shape}}
//   NAME.ckpt/shard-1-of-2.6a21c3.safetensors
//   NAME.ckpt/commit.safetensors                no tensors; values: those of the run, and sharded: {save, world_size,
//                                               shards: [{file, bytes, checksum}], layout: {KEY: {shape, begins}}}
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "levin/core/state.h"

namespace levin {

/// Which file of a sharded checkpoint a rank writes.
struct ShardPlace {
  int64_t rank = 0;
  int64_t world_size = 1;
  std::string save = "";  // tells this save from others to the same folder; the same on all ranks
};

/// Writes this rank's file; rank 0 then waits for those of the others, `patience` at most, and writes the record, and
/// removes what is left of older saves. `state`: tensors of this rank, values with `parts`; rank 0's other values are
/// the run's. Throws CheckpointError naming file and cause; what the folder held before stays.
void write_sharded_checkpoint(const std::string& folder, const State& state, const ShardPlace& place,
                              std::chrono::milliseconds patience = std::chrono::minutes(10));

/// Whether the path is a folder with a commit record.
[[nodiscard]] bool is_sharded_checkpoint(const std::string& path);

/// The commit record of such a folder, which holds the run's values.
[[nodiscard]] std::string sharded_record(const std::string& folder);

/// All of it, put together: what a checkpoint in one file holds. For any number of ranks. Throws CheckpointError naming
/// the file that is missing, of another save, or damaged.
[[nodiscard]] State read_sharded_checkpoint(const std::string& folder);

/// A checkpoint of either kind, as read_checkpoint and read_checkpoint_values do with a file.
[[nodiscard]] State load_checkpoint(const std::string& path);
[[nodiscard]] ConfigNode load_checkpoint_values(const std::string& path);

/// Removes a checkpoint of either kind, or a link to one; nothing if it is not there. Of a folder the record goes
/// first, and only what belongs to a checkpoint. "" or why it could not.
[[nodiscard]] std::string remove_checkpoint(const std::string& path);

/// Of the sharded checkpoints in a folder, removes shards of saves that were begun and never committed, and whose ranks
/// are gone; folders in which nothing is left go too.
void remove_abandoned_shards(const std::string& folder);

}  // namespace levin
