// A checkpoint on disk: one safetensors file with the values as JSON in its metadata and a checksum per tensor. Any
// safetensors reader can open it; loading runs no code and allocates no more than the file's size.
#pragma once

#include <string>
#include <vector>

#include "levin/checkpoint/safetensors.h"
#include "levin/core/files/files.h"
#include "levin/core/state.h"

namespace levin {

/// Writes durably, completely or not at all. Throws CheckpointError naming path, bytes and cause; an old file is then
/// kept. For the result see write_file_durably.
LockedFile write_checkpoint(const std::string& path, const State& state);

/// Creates the folder of a checkpoint at `path`, if there is one in it. Throws CheckpointError.
void make_checkpoint_folder(const std::string& path);

/// Throws CheckpointError naming the path and what is wrong with it: missing, truncated, damaged (which tensor), not a
/// checkpoint.
[[nodiscard]] State read_checkpoint(const std::string& path);

/// Returns the values alone: reads and checks the header, not the tensors' data. Throws as read_checkpoint.
[[nodiscard]] ConfigNode read_checkpoint_values(const std::string& path);

/// A checkpoint opened for reading its tensors one by one. Its functions throw CheckpointError like
/// read_checkpoint.
class CheckpointFile {
 public:
  /// Which files the constructor accepts.
  enum class Accept { checkpoint, any_safetensors };

  /// `any_safetensors` also accepts files of other programs, which have no values and no checksums.
  explicit CheckpointFile(const std::string& path, Accept accept = Accept::checkpoint);

  [[nodiscard]] const SafetensorsFile& file() const { return file_; }
  [[nodiscard]] const ConfigNode& values() const { return values_; }

  /// Returns whether Levin wrote it, so that every byte is covered by a checksum.
  [[nodiscard]] bool is_checkpoint() const { return is_checkpoint_; }

  /// Returns the tensor and verifies its checksum. May be called from several threads.
  [[nodiscard]] at::Tensor read(const SafetensorsEntry& entry) const;

  /// Verifies the tensor's checksum without keeping its data.
  void verify(const SafetensorsEntry& entry) const;

 private:
  void check_header(const std::string& length_and_text, Accept accept);
  void check_metadata();
  void compare(const SafetensorsEntry& entry, uint64_t hash) const;

  bool is_checkpoint_ = false;
  SafetensorsFile file_;
  ConfigNode values_ = ConfigNode::map();
};

}  // namespace levin
