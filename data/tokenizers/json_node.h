// A part of tokenizer.json and where it is, to read options from: a mistake is noted with its path, and all of them are
// reported together.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace levin::tokenizers {

class JsonNode {
 public:
  using Problems = std::vector<std::string>;
  /// Both must outlive the node.
  JsonNode(const nlohmann::json& value, Problems& problems);

  [[nodiscard]] const nlohmann::json& value() const { return *value_; }
  /// "pre_tokenizer.pretokenizers[1]"; "": the whole file.
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] bool is_null() const;  // or absent
  [[nodiscard]] bool is_object() const;
  /// Null if it is absent.
  [[nodiscard]] JsonNode at(const std::string& key) const;
  /// The elements of an array; noted and none if it is not one.
  [[nodiscard]] std::vector<JsonNode> elements() const;

  /// The value of a key, noted and empty if it is of another kind, or absent without a default.
  [[nodiscard]] std::string text(const std::string& key, const std::optional<std::string>& absent = {}) const;
  [[nodiscard]] bool flag(const std::string& key, std::optional<bool> absent = {}) const;
  /// From 0 to `most`.
  [[nodiscard]] int64_t count(const std::string& key, int64_t most, std::optional<int64_t> absent = {}) const;
  /// Exactly one character.
  [[nodiscard]] char32_t character(const std::string& key) const;
  /// The same for a value of its own.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] int64_t count(int64_t most) const;

  /// Notes "PATH: sentence".
  void refuse(const std::string& sentence) const;
  /// Notes that `expected` is not what is there.
  void refuse_value(const std::string& expected) const;

 private:
  JsonNode(const nlohmann::json* value, std::string path, Problems* problems);

  const nlohmann::json* value_;
  std::string path_;
  Problems* problems_;
};

}  // namespace levin::tokenizers
