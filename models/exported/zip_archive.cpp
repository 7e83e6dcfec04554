#include "levin/models/exported/zip_archive.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "levin/core/error.h"
#include "levin/core/files.h"

namespace levin::exported {

namespace {

constexpr uint64_t kEndBytes = 22, kMostComment = 65535, kLocatorBytes = 20, kEnd64Bytes = 56, kEntryBytes = 46;
constexpr uint64_t kLocalBytes = 30, kMostDirectory = 256 << 20;
constexpr uint32_t kEndMark = 0x06054b50, kLocatorMark = 0x07064b50, kEnd64Mark = 0x06064b50;
constexpr uint32_t kEntryMark = 0x02014b50, kLocalMark = 0x04034b50;
constexpr uint64_t kNo32 = 0xffffffff;  // the value is in the 64-bit fields

// A little-endian number of a text that is known to be long enough.
template <class T>
T number_at(const std::string& text, uint64_t offset) {
  T value = 0;
  std::memcpy(&value, text.data() + offset, sizeof(T));
  return value;
}

// The 64-bit fields of an entry stand in the order size, compressed size, offset; each only where its 32 bits are full.
class WideFields {
 public:
  WideFields(const std::string& extra) {
    for (uint64_t at = 0; at + 4 <= extra.size();) {
      const uint64_t bytes = number_at<uint16_t>(extra, at + 2);
      if (number_at<uint16_t>(extra, at) == 1 && at + 4 + bytes <= extra.size()) fields_ = extra.substr(at + 4, bytes);
      at += 4 + bytes;
    }
  }
  // False: the field that `value` refers to is missing.
  bool widen(uint64_t& value) {
    if (value != kNo32) return true;
    if (used_ + 8 > fields_.size()) return false;
    value = number_at<uint64_t>(fields_, used_);
    used_ += 8;
    return true;
  }

 private:
  std::string fields_ = {};
  uint64_t used_ = 0;
};

}  // namespace

ZipArchive::ZipArchive(std::string path)
    : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat status = {};
  if (!descriptor_ || ::fstat(descriptor_.get(), &status) != 0) {
    throw Error("cannot open " + path_ + ": " + system_error_text(errno) + ".");
  }
  if (!S_ISREG(status.st_mode)) {
    throw Error(path_ + " is " + (S_ISDIR(status.st_mode) ? "a folder" : "a FIFO or a device") +
                ", not a .pt2 file of torch.export.save.");
  }
  length_ = static_cast<uint64_t>(status.st_size);
  find_directory();
  read_directory();
  leave_out_common_folder();
}

void ZipArchive::refuse(const std::string& what) const {
  throw Error(path_ + " " + what + ". It is damaged or not a .pt2 file; save it again with torch.export.save.");
}

void ZipArchive::read_at(uint64_t offset, void* memory, uint64_t bytes) const {
  if (offset > length_ || bytes > length_ - offset) {
    refuse("ends at byte " + std::to_string(length_) + ", before byte " + std::to_string(offset) + " + " +
           std::to_string(bytes));
  }
  auto* to = static_cast<char*>(memory);
  while (bytes > 0) {
    const ssize_t done = ::pread(descriptor_.get(), to, bytes, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0)
      throw Error("cannot read " + path_ + ": " + (done == 0 ? "it was cut" : system_error_text(errno)) + ".");
    to += done;
    offset += static_cast<uint64_t>(done);
    bytes -= static_cast<uint64_t>(done);
  }
}

std::string ZipArchive::text_at(uint64_t offset, uint64_t bytes) const {
  if (offset > length_ || bytes > length_ - offset) read_at(offset, nullptr, bytes);  // throws
  std::string text(bytes, '\0');
  read_at(offset, text.data(), bytes);
  return text;
}

void ZipArchive::find_directory() {
  if (length_ < kEndBytes) refuse("has " + std::to_string(length_) + " bytes, too few for a zip archive");
  const uint64_t begin = length_ - std::min(length_, kEndBytes + kMostComment);
  const std::string tail = text_at(begin, length_ - begin);
  uint64_t at = tail.size() - kEndBytes;
  while (number_at<uint32_t>(tail, at) != kEndMark ||
         at + kEndBytes + number_at<uint16_t>(tail, at + 20) != tail.size()) {
    if (at == 0) refuse("has no list of files at its end, so it was cut or is no zip archive");
    --at;
  }
  uint64_t directory_end = begin + at;
  directory_bytes_ = number_at<uint32_t>(tail, at + 12);
  directory_ = number_at<uint32_t>(tail, at + 16);
  if (directory_end >= kLocatorBytes) {
    const std::string locator = text_at(directory_end - kLocatorBytes, kLocatorBytes);
    if (number_at<uint32_t>(locator, 0) == kLocatorMark) {
      const uint64_t end64 = number_at<uint64_t>(locator, 8);
      const std::string wide = text_at(end64, kEnd64Bytes);
      if (number_at<uint32_t>(wide, 0) != kEnd64Mark) refuse("has a 64-bit list of files that does not begin as one");
      directory_bytes_ = number_at<uint64_t>(wide, 40);
      directory_ = number_at<uint64_t>(wide, 48);
      directory_end = end64;
    }
  }
  if (directory_ > directory_end || directory_bytes_ > directory_end - directory_) {
    refuse("has a list of files that reaches over its own end");
  }
  if (directory_bytes_ > kMostDirectory)
    refuse("has a list of files of " + std::to_string(directory_bytes_) + " bytes");
}

void ZipArchive::read_directory() {
  const std::string list = text_at(directory_, directory_bytes_);
  uint64_t stored = 0;
  for (uint64_t at = 0; at < list.size();) {
    if (list.size() - at < kEntryBytes || number_at<uint32_t>(list, at) != kEntryMark) {
      refuse("has a list of files that is not one from its byte " + std::to_string(at) + " on");
    }
    const uint64_t name_bytes = number_at<uint16_t>(list, at + 28), extra_bytes = number_at<uint16_t>(list, at + 30);
    const uint64_t entry_bytes = kEntryBytes + name_bytes + extra_bytes + number_at<uint16_t>(list, at + 32);
    if (entry_bytes > list.size() - at) refuse("has a list of files whose last entry is cut");
    const std::string name = list.substr(at + kEntryBytes, name_bytes);
    WideFields wide(list.substr(at + kEntryBytes + name_bytes, extra_bytes));
    File file{number_at<uint32_t>(list, at + 42), number_at<uint32_t>(list, at + 24),
              number_at<uint32_t>(list, at + 16)};
    uint64_t packed = number_at<uint32_t>(list, at + 20);
    if (!wide.widen(file.bytes) || !wide.widen(packed) || !wide.widen(file.header)) {
      refuse("has a list of files without the 64-bit size of \"" + cut_text(name) + "\"");
    }
    add_file(name, file, number_at<uint16_t>(list, at + 8), number_at<uint16_t>(list, at + 10));
    if (packed != file.bytes) refuse("has two sizes for \"" + cut_text(name) + "\", which is not compressed");
    // Together they are no larger than the archive, so that none is read over and over.
    stored += file.bytes;
    if (file.bytes > length_ || stored > length_) refuse("lists files of more bytes than it has");
    at += entry_bytes;
  }
}

void ZipArchive::add_file(const std::string& name, const File& file, uint32_t flags, uint32_t method) {
  if ((flags & 1) != 0) throw Error(path_ + ": \"" + cut_text(name) + "\" is encrypted.");
  if (method != 0) {
    throw Error(path_ + ": \"" + cut_text(name) +
                "\" is compressed, and PyTorch stores its files as they are. Save the program "
                "again with torch.export.save.");
  }
  if (!files_.emplace(name, file).second) refuse("lists \"" + cut_text(name) + "\" twice");
}

// PyTorch's folder has the name under which the file was saved: net/models/model.json.
void ZipArchive::leave_out_common_folder() {
  if (files_.empty()) refuse("lists no files");
  const std::string folder = files_.begin()->first.substr(0, files_.begin()->first.find('/') + 1);
  std::map<std::string, File> inner;
  for (const auto& [name, file] : files_) {
    if (folder.empty() || !name.starts_with(folder)) refuse("is a zip archive whose files are not in one folder");
    inner.emplace(name.substr(folder.size()), file);
  }
  files_ = std::move(inner);
}

std::vector<std::string> ZipArchive::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : files_) names.push_back(name);
  return names;
}

const ZipArchive::File& ZipArchive::file(const std::string& name) const {
  const auto found = files_.find(name);
  if (found == files_.end()) refuse("has no file \"" + cut_text(name) + "\"");
  return found->second;
}

std::string ZipArchive::read(const std::string& name, uint64_t most_bytes) const {
  const File& found = file(name);
  if (found.bytes > most_bytes) {
    refuse("has \"" + cut_text(name) + "\" of " + std::to_string(found.bytes) + " bytes, more than the " +
           std::to_string(most_bytes) + " that it may have");
  }
  std::string text(found.bytes, '\0');
  read_into(name, text.data());
  return text;
}

void ZipArchive::read_into(const std::string& name, void* memory) const {
  const File& found = file(name);
  const std::string local = text_at(found.header, kLocalBytes);
  if (number_at<uint32_t>(local, 0) != kLocalMark) refuse("does not have \"" + cut_text(name) + "\" where it says");
  const uint64_t begin = found.header + kLocalBytes + number_at<uint16_t>(local, 26) + number_at<uint16_t>(local, 28);
  if (begin > directory_ || found.bytes > directory_ - begin) {
    refuse("has \"" + cut_text(name) + "\" reach over its list of files");
  }
  read_at(begin, memory, found.bytes);
  const auto checksum = ::crc32_z(0, static_cast<const Bytef*>(memory), found.bytes);
  if (checksum != found.checksum && found.bytes > 0) refuse("has a wrong checksum of \"" + cut_text(name) + "\"");
}

}  // namespace levin::exported
