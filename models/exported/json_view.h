// A value within a JSON text that may be damaged or hostile: reads what is expected, or throws Error saying where it
// stands, what was expected and what is there. Internal.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace levin::exported {

class JsonView {
 public:
  /// The root; `file` names it in messages and, like `json`, must outlive all views.
  JsonView(const nlohmann::json& json, const std::string& file) : json_(&json), file_(&file) {}

  /// The member of an object.
  [[nodiscard]] JsonView operator[](const char* key) const;
  /// The same; nothing if it is missing or null.
  [[nodiscard]] std::optional<JsonView> find(const char* key) const;
  /// The members of an object, or the items of a list, in their order.
  [[nodiscard]] std::vector<std::pair<std::string, JsonView>> members() const;
  [[nodiscard]] std::vector<JsonView> items() const;
  /// The only member of an object: the export schema's unions.
  [[nodiscard]] std::pair<std::string, JsonView> only_member() const;

  [[nodiscard]] bool is_null() const;
  [[nodiscard]] bool is_text() const;
  [[nodiscard]] std::string text() const;
  [[nodiscard]] bool boolean() const;
  [[nodiscard]] int64_t integer() const;
  /// A number, or "Infinity", "-Infinity" or "NaN".
  [[nodiscard]] double real() const;

  /// Throws Error: file, place, and `what` ("must be …").
  [[noreturn]] void refuse(const std::string& what) const;

 private:
  JsonView(const nlohmann::json& json, const JsonView& parent, std::string step);
  [[noreturn]] void expected(const std::string& what) const;

  const nlohmann::json* json_;
  const std::string* file_;
  std::string place_ = {};
};

// The numbers of torch.export's schema (torch/_export/serde/schema.py, version 8) as LibTorch's types. Each throws
// Error for a number that has no meaning there.

[[nodiscard]] c10::ScalarType read_dtype(const JsonView& number);
/// Returns whether a number is a c10::ScalarType that read_dtype can return.
[[nodiscard]] bool is_dtype(int64_t value);
[[nodiscard]] c10::Layout read_layout(const JsonView& number);
[[nodiscard]] c10::MemoryFormat read_memory_format(const JsonView& number);
/// {"type": "cuda", "index": 0}
[[nodiscard]] c10::Device read_device(const JsonView& device);

}  // namespace levin::exported
