// The files of PredictionWriter: the output, which appears when it is complete, and spools, in which each rank keeps
// what it has computed until rank 0 joins them.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "levin/core/storage/new_file.h"

namespace levin {

/// A file under a temporary name next to `path`. It is removed with the object unless finish() renamed it. Throws Error
/// naming path and cause if it cannot be written.
class UnfinishedFile {
 public:
  explicit UnfinishedFile(std::string path);

  void write(std::string_view bytes);
  /// Writes what is buffered.
  void flush();
  /// Syncs the file to the disk and gives it its name.
  void finish();
  [[nodiscard]] const std::string& temporary_path() const { return file_.temporary_path(); }

 private:
  void write_through(std::string_view bytes);
  [[noreturn]] void fail() const;

  std::string path_;
  NewFile file_;
  std::string buffer_ = "";
};

/// The position of a block among the blocks of all ranks, in the order in which one process computes them.
struct BlockKey {
  int64_t dataloader_idx = 0;
  int64_t loader = 0;  // of several that are read one after another as one
  int64_t batch = 0;   // among the batches of all ranks

  auto operator<=>(const BlockKey&) const = default;
};

/// What a rank has computed for one batch; in a spool its bytes follow it.
struct SpoolBlock {
  BlockKey key = {};
  int64_t rows = 0;
  int64_t shape = 0;  // number of the rows' shape in the spool's own list
  uint64_t bytes = 0;
};

/// Blocks in a temporary file next to `output`, which is removed with the object.
class Spool {
 public:
  explicit Spool(const std::string& output) : file_(output) {}

  void append(const BlockKey& key, int64_t rows, int64_t shape, std::string_view bytes);
  void append(const BlockKey& key, int64_t rows, const std::vector<std::string>& pieces);
  void flush() { file_.flush(); }
  [[nodiscard]] const std::string& path() const { return file_.temporary_path(); }

 private:
  UnfinishedFile file_;
};

/// The blocks of several ranks' spools as one sequence: a rank's blocks in the order in which it appended them, and of
/// the ranks' next blocks always the one with the lowest key, of equal keys the lower rank's. Holds one buffer for each
/// rank. Throws Error naming a spool that cannot be read or ends early.
class SpoolReader {
 public:
  explicit SpoolReader(const std::vector<std::string>& paths);
  ~SpoolReader();
  SpoolReader(const SpoolReader&) = delete;
  SpoolReader& operator=(const SpoolReader&) = delete;

  /// Finds the next block; its bytes are then read with copy(), or skipped by the next call. Returns false at the end.
  bool next(SpoolBlock& block);
  /// Returns which of the spools the block is from.
  [[nodiscard]] size_t spool() const { return current_; }
  /// Gives all bytes of the block to `take`, piece by piece.
  void copy(const std::function<void(std::string_view)>& take);

 private:
  struct Source;

  std::vector<std::unique_ptr<Source>> sources_;
  size_t current_ = 0;
  bool has_block_ = false;
  uint64_t left_ = 0;  // bytes of the current block that were not read
};

/// Removes files that killed writers of `path` have left.
void remove_unfinished(const std::string& path);

}  // namespace levin
