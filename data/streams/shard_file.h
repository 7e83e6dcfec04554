// The bytes of a shard, read with checks: every error names the file and the byte.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/data/files/mapped_file.h"

namespace levin::streams {

/// A mapped shard.
class ShardFile {
 public:
  /// Throws DataError if the file cannot be read.
  explicit ShardFile(const std::string& path) : path_(path), file_(path) {}

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] uint64_t size() const { return file_.size(); }
  [[nodiscard]] std::string_view all() const { return {reinterpret_cast<const char*>(file_.data()), file_.size()}; }

  /// Returns `count` bytes from `offset` on. Throws DataError, which calls them `what`, if the file ends before.
  [[nodiscard]] std::string_view bytes(uint64_t offset, uint64_t count, const char* what) const {
    if (offset > size() || count > size() - offset) fail_end(offset, count, what);
    return all().substr(offset, count);
  }
  [[nodiscard]] uint32_t u32(uint64_t offset, const char* what) const {
    uint32_t value = 0;
    std::memcpy(&value, bytes(offset, sizeof value, what).data(), sizeof value);
    return value;
  }

  /// Throws DataError: "PATH: byte N: WHAT. Copy the shard again."
  [[noreturn]] void fail(uint64_t byte, const std::string& what) const;

 private:
  [[noreturn]] void fail_end(uint64_t offset, uint64_t count, const char* what) const;

  std::string path_;
  MappedFile file_;
};

/// Throws DataError if `index` is not from 0 to `size` - 1.
void check_sample_index(const std::string& path, int64_t index, int64_t size);

/// The bytes of one field of a sample, read from front to back.
class FieldBytes {
 public:
  /// `field`: its name, "" for the whole sample; must outlive the object, as `file` must.
  FieldBytes(const ShardFile& file, int64_t sample, const std::string& field, std::string_view bytes)
      : file_(file), sample_(sample), field_(field), bytes_(bytes) {}

  [[nodiscard]] size_t left() const { return bytes_.size() - at_; }
  /// Returns the bytes that have not been read.
  [[nodiscard]] std::string_view rest() const { return bytes_.substr(at_); }
  [[nodiscard]] const std::string& name() const { return field_; }

  /// Returns the next `count` bytes. Throws DataError, which calls them `what`, if the field ends before.
  std::string_view take(uint64_t count, const char* what);
  std::string_view take_rest() { return take(left(), ""); }
  template <class T>
  requires std::is_arithmetic_v<T> T number(const char* what) {
    T value{};
    std::memcpy(&value, take(sizeof value, what).data(), sizeof value);
    return value;
  }
  /// Returns a part as a field with this field's name.
  [[nodiscard]] FieldBytes part(uint64_t count, const char* what) {
    return {file_, sample_, field_, take(count, what)};
  }
  /// Throws DataError if bytes are left.
  void expect_end() const;

  /// "PATH: sample 3, field x"
  [[nodiscard]] std::string where() const;
  /// Throws DataError: "PATH: sample 3, field x, byte N: WHAT. Copy the shard again." The byte is the next one.
  [[noreturn]] void fail(const std::string& what) const;
  /// Throws DataError: "PATH: sample 3, field x: WHAT", for values that are not damaged.
  [[noreturn]] void refuse(const std::string& what) const;

 private:
  const ShardFile& file_;
  int64_t sample_;
  const std::string& field_;
  std::string_view bytes_;
  size_t at_ = 0;
};

}  // namespace levin::streams
