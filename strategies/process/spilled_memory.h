// Large CPU tensors whose memory is a file on disk, for making a model that does not fit in memory, with bitwise the
// same values. Internal, for fsdp.
//
//   SpilledMemory spilled("/tmp");
//   {
//     const SpilledMemory::Scope scope(spilled);
//     module.make_layers();        // of tensors of 64 KiB and more, only the pages written last are in memory
//   }
//   …copy the needed part of each tensor and free it…
//   spilled.move_to_memory();      // the remaining tensors
//
// Each block is a shared mapping of an unnamed file, so it can be read and written in any way, on any thread, and
// freeing it frees its disk space. No file remains, however the process ends.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace levin {

class SpilledMemory {
 public:
  static constexpr size_t kSmallestBlock = 64 << 10;

  /// `folder`: where the files are created; "auto": $TMPDIR if set, otherwise the first of /tmp and /var/tmp that is on
  /// a disk. Warns, and spills nothing, if the folder's file system is in memory or no file can be created in it.
  explicit SpilledMemory(const std::string& folder);
  /// Tensors that outlive it are unchanged.
  ~SpilledMemory();
  SpilledMemory(const SpilledMemory&) = delete;
  SpilledMemory& operator=(const SpilledMemory&) = delete;

  /// During its lifetime, large tensors that its thread makes are spilled; other threads' are not. Scopes may be
  /// nested, and must end on the thread that began them. If the disk is full or a file would be too large, tensors use
  /// ordinary memory from then on, and a warning is printed.
  class Scope {
   public:
    explicit Scope(SpilledMemory& memory);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    SpilledMemory* outer_;
  };

  /// Evicts all blocks from resident memory to the disk. They are read back on access.
  void give_back();

  /// Moves all existing blocks to ordinary memory, at the same addresses. Nothing may write to them meanwhile.
  void move_to_memory();

  /// Bytes of tensors whose memory is in files.
  [[nodiscard]] int64_t bytes() const;

  /// Whether a tensor's memory is a file, of any SpilledMemory.
  [[nodiscard]] static bool holds(const at::Tensor& tensor);

 private:
  class Allocator;
  struct Block;

  [[nodiscard]] void* allocate(size_t bytes);
  void turn_off(int error_number, size_t bytes);

  std::string folder_;
  int64_t id_;
  std::atomic<bool> off_ = false;
  std::atomic<size_t> fresh_bytes_ = 0;  // since the last give_back()
  std::atomic<size_t> fresh_files_ = 0;
};

}  // namespace levin
