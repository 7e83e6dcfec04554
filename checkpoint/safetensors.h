// Plain safetensors files: named tensors after a JSON header (docs/checkpoint_format.md). Reads files of any program
// without trusting them: every size and offset is checked before anything is allocated, so the tensors together are at
// most as large as the file. Reading runs no code. A SafetensorsFile may be read from several threads.
//
//   const SafetensorsFile file("model.safetensors");
//   for (const auto& entry : file.entries()) use(entry.name, file.read(entry));
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "levin/checkpoint/safetensors_header.h"
#include "levin/core/options/error.h"
#include "levin/core/tensors.h"

namespace levin {

/// A file opened for reading. Its functions throw CheckpointError naming the path and what is wrong with the file.
class SafetensorsFile {
 public:
  /// Called with a tensor's bytes piece by piece, in order, while they are in the cache: for checksums.
  using Watch = std::function<void(std::span<const std::byte>)>;

  /// Reads and checks the header. `check_header` sees its length (8 bytes) and text before they are parsed and may
  /// throw CheckpointError; the path is put before its message.
  explicit SafetensorsFile(const std::string& path, const std::function<void(const std::string&)>& check_header = {});
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] uint64_t size() const { return size_; }                // bytes of the whole file
  [[nodiscard]] uint64_t header_bytes() const { return data_begin_; }  // where the data begin

  /// Returns the entries in the order of their data, which they fill without gap or overlap.
  [[nodiscard]] const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }

  [[nodiscard]] at::Tensor read(const SafetensorsEntry& entry, const Watch& watch = {}) const;

  /// Like read, without keeping the data.
  void scan(const SafetensorsEntry& entry, const Watch& watch = {}) const;

 private:
  void open();
  [[nodiscard]] std::string header_text() const;
  void parse_header(const std::string& length_and_text);
  void read_at(std::byte* to, uint64_t count, uint64_t offset) const;
  void stream(const SafetensorsEntry& entry, std::byte* to, const Watch& watch) const;

  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
  uint64_t data_begin_ = 0;
  std::vector<SafetensorsEntry> entries_ = {};
  std::map<std::string, std::string> metadata_ = {};
};

/// Calls `read` with 0 to `count` - 1, from several threads if `bytes`, the total size, is large. Blocks until
/// all is done; throws the error of the lowest number.
void read_in_parallel(size_t count, uint64_t bytes, const std::function<void(size_t)>& read);

namespace detail {
/// Runs `action`; a CheckpointError from it is rethrown with the path in front.
template <class Action>
auto naming_file(const std::string& path, const Action& action) -> decltype(action()) {
  try {
    return action();
  } catch (const CheckpointFormatError& error) {
    throw CheckpointFormatError(path + ": " + error.what() + ".");
  } catch (const CheckpointError& error) {
    throw CheckpointError(path + ": " + cut_text(error.what(), 1000) +
                          ".");  // truncated, because it may quote the file
  }
}
}  // namespace detail

}  // namespace levin
