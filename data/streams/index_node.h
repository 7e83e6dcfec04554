// A value of an index file, read with checks: every error names the file and the path of the value.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace levin::streams {

class IndexNode {
 public:
  /// `name`: of the file. Both must outlive the node.
  IndexNode(const nlohmann::json& value, const std::string& name) : IndexNode(&value, &name, "") {}

  [[nodiscard]] bool is_null() const;  // or absent
  [[nodiscard]] bool is_object() const;
  [[nodiscard]] bool has(const std::string& key) const;
  [[nodiscard]] const nlohmann::json& value() const { return *value_; }
  [[nodiscard]] const std::string& file() const { return *name_; }
  /// Returns the value of a key, which is null if absent.
  [[nodiscard]] IndexNode operator[](const std::string& key) const;
  /// Return the elements of an array, or the keys of an object. Throw DataError for any other value.
  [[nodiscard]] std::vector<IndexNode> elements() const;
  [[nodiscard]] std::vector<std::string> keys() const;

  /// Return the value. Throw DataError if it is of a different kind.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] int64_t count(int64_t most = INT64_MAX) const;  // from 0
  /// Returns a file's name below the root of the data set. Throws DataError if it leads out of it.
  [[nodiscard]] std::string key() const;

  /// Throws DataError: "FILE: PATH: WHAT".
  [[noreturn]] void fail(const std::string& what) const;
  /// Throws DataError: "FILE: PATH: expected EXPECTED, found …".
  [[noreturn]] void fail_expected(const std::string& expected) const;

 private:
  IndexNode(const nlohmann::json* value, const std::string* name, std::string path)
      : value_(value), name_(name), path_(std::move(path)) {}

  const nlohmann::json* value_;
  const std::string* name_;
  std::string path_;
};

/// Parses the text of the file `name`. Throws DataError with the byte of the first mistake.
[[nodiscard]] nlohmann::json parse_index(const std::string& name, std::string_view text);

}  // namespace levin::streams
