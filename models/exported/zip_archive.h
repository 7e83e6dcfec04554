// A zip archive whose files are stored as they are, as PyTorch writes it (.pt2). Every size and offset is checked
// against the file's length before it is used, every content against its checksum. Internal.
//
// The format: PKWARE's APPNOTE.TXT, 4.3.7 (local header), 4.3.12 (central directory), 4.3.14 and 4.3.16 (its
// end), 4.5.3 (64-bit sizes).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "levin/core/file_descriptor.h"

namespace levin::exported {

class ZipArchive {
 public:
  /// Reads the list of files; throws Error naming the path and what is wrong.
  explicit ZipArchive(std::string path);

  [[nodiscard]] const std::string& path() const { return path_; }
  /// In alphabetical order, without the folder that PyTorch puts around all of them.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] bool has(const std::string& name) const { return files_.contains(name); }
  /// Bytes; throws Error if there is no such file.
  [[nodiscard]] uint64_t size_of(const std::string& name) const { return file(name).bytes; }

  /// The whole file; throws Error if there is none, if it has more than `most_bytes`, or if it is damaged.
  [[nodiscard]] std::string read(const std::string& name, uint64_t most_bytes) const;
  /// The same into memory of size_of(name) bytes.
  void read_into(const std::string& name, void* memory) const;

 private:
  struct File {
    uint64_t header = 0;  // offset of its local header
    uint64_t bytes = 0;
    uint32_t checksum = 0;
  };

  [[noreturn]] void refuse(const std::string& what) const;
  [[nodiscard]] const File& file(const std::string& name) const;
  void read_at(uint64_t offset, void* memory, uint64_t bytes) const;
  [[nodiscard]] std::string text_at(uint64_t offset, uint64_t bytes) const;
  void find_directory();
  void read_directory();
  void add_file(const std::string& name, const File& file, uint32_t flags, uint32_t method);
  void leave_out_common_folder();

  std::string path_;
  FileDescriptor descriptor_;
  uint64_t length_ = 0;
  uint64_t directory_ = 0;  // offset and bytes of the central directory
  uint64_t directory_bytes_ = 0;
  std::map<std::string, File> files_ = {};
};

}  // namespace levin::exported
