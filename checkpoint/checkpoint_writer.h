// Writes checkpoints in the background: the training thread copies the tensors and goes on, a thread of the writer
// checksums, writes, syncs and renames. One group of files is in the works at a time.
//
//   writer.submit(jobs);   // waits for the group before, copies the tensors, returns
//   writer.poll();         // after each batch: tells the jobs' `done` what became of them
//   writer.finish();       // waits for the disk
//
// All functions belong to the training thread; `done` runs on it too.
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

/// A file that was requested.
struct CheckpointRequest {
  std::string path;
  bool weights_only = false;
  std::string link_to = "";                // not empty: make `path` a link to this file instead of a file of its own
  std::vector<std::string> obsolete = {};  // removed once the file is on the disk
  bool asynchronous = true;                // false: submit waits for the disk
  std::function<void(const std::string& error)> done = {};  // "" if all went well
  std::string folder = "";  // not empty: the file must come to lie in it, links on the way resolved
  State state = {};
  std::optional<ShardPlace> shard = {};  // every rank writes its file of a sharded checkpoint
};

class CheckpointWriter {
 public:
  CheckpointWriter() = default;
  /// Finishes what was submitted.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// False: what is submitted counts as written at once, shards excepted. For ranks other than 0.
  void set_writes(bool writes) { writes_ = writes; }

  /// Writes the files in order. `sync_first` are flushed to the disk before: what the checkpoint refers to. Tensors
  /// that several requests share are copied once. Throws what a `done` throws.
  void submit(std::vector<CheckpointRequest> requests, std::vector<std::string> sync_first);

  /// Calls `done` of the requests whose fate is known; never waits.
  void poll();

  /// Waits until nothing is in the works, then as poll().
  void finish();

 private:
  struct Group {
    std::vector<CheckpointRequest> requests;
    std::vector<std::string> sync_first;
    std::vector<std::string> errors;  // one a request, "" if all went well
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
  std::unique_ptr<Group> waiting_;   // handed to the thread
  std::unique_ptr<Group> finished_;  // handed back
  bool busy_ = false;                // a group is waiting or being written
  bool stop_ = false;
  // Buffers of the copies, kept from save to save: fresh memory costs more than the copy.
  std::unordered_map<std::string, at::Tensor> staging_ = {};
  struct Copied {
    at::Tensor copy;
    std::vector<int64_t> strides;  // of the tensor: a matrix and its transpose have the same data and shape
  };
  std::unordered_map<const void*, Copied> copied_ = {};  // of the running submit: where a tensor's data went
};

}  // namespace levin
