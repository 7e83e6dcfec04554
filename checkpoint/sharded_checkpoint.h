// A checkpoint that several ranks write together: a folder NAME.ckpt with one safetensors file per rank and one commit
// record. Each rank writes its own parts durably; when all are on the disk rank 0 writes the record, which lists the
// files that belong together. A folder without a record is not a checkpoint. A save over an older one writes files with
// new names first, and the older files are removed after the record is in place: at any time there is either the old
// checkpoint or the new one.
//
//   NAME.ckpt/shard-0-of-2.6a21c3.safetensors   its values give the positions of its parts: parts: {KEY: {begin,
//   shape}} NAME.ckpt/shard-1-of-2.6a21c3.safetensors NAME.ckpt/commit.safetensors                no tensors; values:
//   the run's, and sharded: {save, world_size,
//                                               shards: [{file, bytes, checksum}], layout: {KEY: {shape, begins}}}
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "levin/core/state.h"

namespace levin {

/// The file of a sharded checkpoint that a rank writes.
struct ShardPlace {
  int64_t rank = 0;
  int64_t world_size = 1;
  std::string save = "";  // distinguishes this save from others to the same folder; the same on all ranks
};

/// Writes this rank's file; rank 0 then waits for the other ranks' files, at most `patience`, writes the record, and
/// removes the files of older saves. `state`: tensors of this rank, values with `parts`; rank 0's other values are the
/// run's. Throws CheckpointError naming file and cause; the folder's earlier contents stay.
void write_sharded_checkpoint(const std::string& folder, const State& state, const ShardPlace& place,
                              std::chrono::milliseconds patience = std::chrono::minutes(10));

/// Writes a checkpoint of one file, also where a sharded one is: the older one stays until the new one is complete.
/// Throws CheckpointError naming file and cause; the older checkpoint is then where it was.
void write_single_checkpoint(const std::string& path, const State& state);

/// Returns whether the path is a folder with a commit record.
[[nodiscard]] bool is_sharded_checkpoint(const std::string& path);

/// Returns the path of the folder's commit record, which holds the run's values. Throws CheckpointError if there is
/// none.
[[nodiscard]] std::string sharded_record(const std::string& folder);

/// Reads the full checkpoint as if it were a single file, for any number of ranks. Throws CheckpointError naming the
/// file that is missing, damaged or of a different save.
[[nodiscard]] State read_sharded_checkpoint(const std::string& folder);

/// Reads a checkpoint of either kind, like read_checkpoint.
[[nodiscard]] State load_checkpoint(const std::string& path);

/// Removes a checkpoint of either kind, or a link to one; does nothing if it does not exist. From a folder it
/// removes the record first, and only files of a checkpoint. Returns "" or the error.
[[nodiscard]] std::string remove_checkpoint(const std::string& path);

/// Removes shards of uncommitted saves whose ranks are gone from the sharded checkpoints in a folder; empty folders are
/// removed too.
void remove_abandoned_shards(const std::string& folder);

}  // namespace levin
