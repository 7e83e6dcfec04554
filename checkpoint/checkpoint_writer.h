// Writes checkpoints in the background: the training thread copies the tensors and continues; the writer's thread
// computes checksums, writes, syncs and renames. One group of files is written at a time.
//
//   writer.submit(jobs);   // waits for the group before, copies the tensors, returns
//   writer.poll();         // after each batch: calls `done` of the jobs that are complete
//   writer.finish();       // waits for the disk
//
// All functions, and `done`, run on the training thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "levin/checkpoint/sharded_checkpoint.h"
#include "levin/core/state.h"

namespace levin {

/// A checkpoint to be written: its path and contents, and what to do once the file is on the disk.
struct CheckpointRequest {
  std::string path;
  bool weights_only = false;
  std::string link_to = "";                                 // not empty: make `path` a link to this file
  std::vector<std::string> obsolete = {};                   // removed once the file is on the disk
  bool asynchronous = true;                                 // false: submit waits for the disk
  std::function<void(const std::string& error)> done = {};  // "" on success
  std::string folder = "";  // not empty: the file must be in this folder after links are resolved
  State state = {};
  std::optional<ShardPlace> shard = {};  // every rank writes its file of a sharded checkpoint
};

/// A writer of one rank's checkpoints, in a background thread. What it writes is complete or missing, never partial. An
/// error of a write is passed to the request's `done`. Ranks other than 0 write only shards (set_writes).
class CheckpointWriter {
 public:
  CheckpointWriter() = default;
  /// Waits until everything that was submitted is written.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// False: submitted files count as written at once, except shards. For ranks other than 0.
  void set_writes(bool writes) { writes_ = writes; }

  /// Writes the files in order. `sync_first`: files the checkpoint refers to, synced before. Tensors
  /// that several requests share are copied once. Rethrows what a `done` throws.
  void submit(std::vector<CheckpointRequest> requests, std::vector<std::string> sync_first);

  /// Calls `done` of completed requests; never waits.
  void poll();

  /// Waits until everything is written, then like poll().
  void finish();

 private:
  struct Group {
    std::vector<CheckpointRequest> requests;
    std::vector<std::string> sync_first;
    std::vector<std::string> errors;  // one per request, "" on success
  };

  [[nodiscard]] State staged(const State& state);
  [[nodiscard]] bool start_thread();
  void work();
  void write(Group& group) const;
  void report(Group group);

  bool writes_ = true;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
  std::shared_ptr<Group> waiting_;   // handed to the thread
  std::shared_ptr<Group> finished_;  // handed back
  bool busy_ = false;                // a group is waiting or being written
  bool stop_ = false;
  // Buffers of the copies, reused by later saves: new memory costs more than the copy.
  std::unordered_map<std::string, at::Tensor> staging_ = {};
  struct Copied {
    at::Tensor copy;
    std::vector<int64_t> strides;  // of the tensor: a matrix and its transpose have the same data and shape
  };
  std::unordered_map<const void*, Copied> copied_ = {};  // of the running submit: where a tensor's data went
};

}  // namespace levin
