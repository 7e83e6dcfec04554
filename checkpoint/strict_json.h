// Reads JSON from files that may be damaged or hostile: bounded depth, no duplicate keys, errors with the byte offset,
// linear time (nlohmann's parser with a callback takes quadratic time).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "levin/checkpoint/values_json.h"
#include "levin/core/options/error.h"

namespace levin::detail {

/// Checks a document during parsing and builds its tree; throws CheckpointError. Builds it from the parser's events,
/// because nlohmann's own builder looks for each key among those before, one by one, if the order of keys is kept.
template <class Json>
class StrictJsonReader final : public nlohmann::json_sax<Json> {
 public:
  using Base = nlohmann::json_sax<Json>;
  explicit StrictJsonReader(size_t bytes) : bytes_(bytes) {}
  [[nodiscard]] Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(typename Base::number_integer_t value) override { return add(value); }
  bool number_unsigned(typename Base::number_unsigned_t value) override { return add(value); }
  bool number_float(typename Base::number_float_t value, const std::string&) override { return add(value); }
  bool string(std::string& text) override { return add(std::move(text)); }
  bool binary(typename Base::binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    if (!open_.back().keys.insert(name).second) {
      throw CheckpointError("JSON has the key \"" + cut_text(name) + "\" twice in one object");
    }
    open_.back().key = std::move(name);
    return true;
  }
  bool parse_error(size_t byte, const std::string&, const nlohmann::detail::exception&) override {
    throw CheckpointError("not JSON at byte " + std::to_string(byte) + " of " + std::to_string(bytes_));
  }

 private:
  struct Open {
    Json value;
    std::string key = "";  // of the value that is read next
    std::unordered_set<std::string> keys = {};
  };

  bool open(Json value) {
    open_.push_back({std::move(value)});
    if (open_.size() <= static_cast<size_t>(kMaxJsonDepth)) return true;
    throw CheckpointError("JSON nests deeper than " + std::to_string(kMaxJsonDepth) + " levels");
  }
  bool close() {
    Json value = std::move(open_.back().value);
    open_.pop_back();
    return add(std::move(value));
  }
  bool add(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (Open& parent = open_.back(); parent.value.is_array()) {
      parent.value.push_back(std::move(value));
    } else {
      auto& object = parent.value.template get_ref<typename Json::object_t&>();
      if constexpr (std::is_same_v<Json, nlohmann::ordered_json>) {
        object.emplace_back(std::move(parent.key), std::move(value));
      } else {
        object.emplace(std::move(parent.key), std::move(value));
      }
    }
    return true;
  }

  size_t bytes_;
  Json root_ = nullptr;
  std::vector<Open> open_ = {};  // objects and lists
};

/// Throws CheckpointError. `Json`: nlohmann::ordered_json keeps the order of keys, nlohmann::json finds a key in
/// logarithmic time.
template <class Json>
Json parse_strictly(const std::string& text) {
  StrictJsonReader<Json> reader(text.size());
  Json::sax_parse(text, &reader);
  return reader.take();
}

}  // namespace levin::detail
