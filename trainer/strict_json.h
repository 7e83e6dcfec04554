// Reads JSON from files that may be damaged or hostile: bounded depth, no key twice, errors with the byte offset.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "levin/core/error.h"
#include "levin/trainer/values_json.h"

namespace levin::detail {

/// Throws CheckpointError. `Json`: nlohmann::ordered_json keeps the order of keys, nlohmann::json finds a key in
/// logarithmic time.
template <class Json>
Json parse_strictly(const std::string& text) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto watch = [&](int depth, typename Json::parse_event_t event, Json& value) {
    if (depth > kMaxJsonDepth) {
      throw CheckpointError("JSON nests deeper than " + std::to_string(kMaxJsonDepth) + " levels");
    }
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.template get<std::string>()).second) {
      throw CheckpointError("JSON has the key " + value.dump() + " twice in one object");
    }
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const typename Json::parse_error& error) {
    throw CheckpointError("not JSON at byte " + std::to_string(error.byte) + " of " + std::to_string(text.size()));
  } catch (const typename Json::exception& error) {
    throw CheckpointError(std::string("not readable as JSON: ") + error.what());
  }
}

}  // namespace levin::detail
