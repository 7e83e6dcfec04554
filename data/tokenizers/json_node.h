// A part of tokenizer.json and its path, from which options are read. Mistakes are noted with their paths and reported
// together.
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
  /// The path, such as "pre_tokenizer.pretokenizers[1]"; "" for the whole file.
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] bool is_null() const;  // or absent
  [[nodiscard]] bool is_object() const;
  /// Returns the value of a key as a node, which is null if absent.
  [[nodiscard]] JsonNode at(const std::string& key) const;
  /// Returns the elements of an array; notes a mistake and returns none for any other value.
  [[nodiscard]] std::vector<JsonNode> elements() const;

  /// Returns the value of a key; notes a mistake and returns an empty value if its type is wrong, or if it is absent
  /// and has no default.
  [[nodiscard]] std::string text(const std::string& key, const std::optional<std::string>& absent = {}) const;
  [[nodiscard]] bool flag(const std::string& key, std::optional<bool> absent = {}) const;
  /// Returns a number from 0 to `most`.
  [[nodiscard]] int64_t count(const std::string& key, int64_t most, std::optional<int64_t> absent = {}) const;
  /// Returns exactly one character.
  [[nodiscard]] char32_t character(const std::string& key) const;
  /// Returns the node's own value as a string.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] int64_t count(int64_t most) const;

  /// Notes "PATH: sentence".
  void refuse(const std::string& sentence) const;
  /// Notes what was expected and what was found.
  void refuse_value(const std::string& expected) const;

 private:
  JsonNode(const nlohmann::json* value, std::string path, Problems* problems);

  const nlohmann::json* value_;
  std::string path_;
  Problems* problems_;
};

}  // namespace levin::tokenizers
