// A checkpoint that several ranks write together: a folder NAME.ckpt with one safetensors file per rank and one commit
// record. Each rank writes its own parts durably; when all are on the disk rank 0 writes the record, which lists the
// files that belong together. A folder without a record is not a checkpoint. A save over an older one writes files with
// new names first, and the older files are removed after the record is in place: at any time there is either the old
// checkpoint or the new one.
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
  std::string save = "";  // distinguishes this save from others to the same folder; the same on all ranks
};

/// Writes this rank's file; rank 0 then waits for those of the others, at most `patience`, writes the record, and
/// removes the files of older saves. `state`: tensors of this rank, values with `parts`; rank 0's other values are the
/// run's. Throws CheckpointError naming file and cause; the folder's earlier contents stay.
void write_sharded_checkpoint(const std::string& folder, const State& state, const ShardPlace& place,
                              std::chrono::milliseconds patience = std::chrono::minutes(10));

/// Whether the path is a folder with a commit record.
[[nodiscard]] bool is_sharded_checkpoint(const std::string& path);

/// The commit record of such a folder, with the run's values.
[[nodiscard]] std::string sharded_record(const std::string& folder);

/// The whole checkpoint, like one in a single file, for any number of ranks. Throws CheckpointError naming
/// the file that is missing, of another save, or damaged.
[[nodiscard]] State read_sharded_checkpoint(const std::string& folder);

/// A checkpoint of either kind, like read_checkpoint and read_checkpoint_values.
[[nodiscard]] State load_checkpoint(const std::string& path);
[[nodiscard]] ConfigNode load_checkpoint_values(const std::string& path);

/// Removes a checkpoint of either kind, or a link to one; does nothing if it does not exist. Of a folder the record is
/// removed first, and only files of a checkpoint. Returns "" or the error.
[[nodiscard]] std::string remove_checkpoint(const std::string& path);

/// Removes shards of uncommitted saves whose ranks are gone from the sharded checkpoints in a folder; empty folders are
/// removed too.
void remove_abandoned_shards(const std::string& folder);

}  // namespace levin
