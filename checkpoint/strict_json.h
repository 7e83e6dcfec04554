// Reads JSON from files that may be damaged or hostile: bounded depth, no duplicate keys, errors with the byte offset,
// linear time (nlohmann's parser with a callback takes quadratic time).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <unordered_set>
#include <vector>

#include "levin/checkpoint/values_json.h"
#include "levin/core/error.h"

namespace levin::detail {

/// Checks a text during parsing; throws CheckpointError.
class StrictJsonWatch final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit StrictJsonWatch(size_t bytes) : bytes_(bytes) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (keys_.back().insert(name).second) return true;
    throw CheckpointError("JSON has the key \"" + cut_text(name) + "\" twice in one object");
  }
  bool parse_error(size_t byte, const std::string&, const nlohmann::detail::exception&) override {
    throw CheckpointError("not JSON at byte " + std::to_string(byte) + " of " + std::to_string(bytes_));
  }

 private:
  bool open() {
    keys_.emplace_back();
    if (keys_.size() <= static_cast<size_t>(kMaxJsonDepth)) return true;
    throw CheckpointError("JSON nests deeper than " + std::to_string(kMaxJsonDepth) + " levels");
  }
  bool close() {
    keys_.pop_back();
    return true;
  }

  size_t bytes_;
  std::vector<std::unordered_set<std::string>> keys_ = {};  // of the objects (and lists) that are open
};

/// Throws CheckpointError. `Json`: nlohmann::ordered_json keeps the order of keys, nlohmann::json finds a key in
/// logarithmic time.
template <class Json>
Json parse_strictly(const std::string& text) {
  try {
    StrictJsonWatch watch(text.size());
    nlohmann::json::sax_parse(text, &watch);
    return Json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError(std::string("not readable as JSON: ") + error.what());
  }
}

}  // namespace levin::detail
