// Large CPU tensors whose memory is a file on the disk: a model is made, bit for bit as it is made anywhere, that a
// process's memory would not hold. Internal, for fsdp.
//
//   SpilledMemory spilled("/tmp");
//   {
//     const SpilledMemory::Scope scope(spilled);
//     module.make_layers();        // of each tensor of 64 KiB and more, the pages that were written last are in memory
//   }
//   …take what is wanted of each tensor and free it…
//   spilled.move_to_memory();      // what is still there
//
// A block is a shared mapping of a file of its own that has no name, so every way to read and write it works, on every
// thread, and freeing it gives the disk its room back. Nothing is left of it, however the process ends.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace levin {

class SpilledMemory {
 public:
  static constexpr size_t kSmallestBlock = 64 << 10;

  /// `folder`: where the files are; "auto": the first of $TMPDIR, or /tmp and /var/tmp, that is on a disk. Warns, and
  /// spills nothing, where the folder is in memory itself or no file can be made in it.
  explicit SpilledMemory(const std::string& folder);
  /// Tensors that live longer stay as they are.
  ~SpilledMemory();
  SpilledMemory(const SpilledMemory&) = delete;
  SpilledMemory& operator=(const SpilledMemory&) = delete;

  /// While one lives, the large tensors that its thread makes are spilled; other threads' are not. Scopes may be
  /// nested; they end on the thread that has begun them. Where the disk is full or its files cannot be that large,
  /// tensors get ordinary memory from then on, and a warning says so.
  class Scope {
   public:
    explicit Scope(SpilledMemory& memory);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    SpilledMemory* outer_;
  };

  /// Takes everything out of resident memory that is on its way to the disk, or there. It comes back when it is read.
  void give_back();

  /// Everything that lives gets ordinary memory, at the same addresses. Nobody may write to it meanwhile.
  void move_to_memory();

  /// Bytes of tensors that live in files.
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
