#include "forge.h"

#include <xxhash.h>

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>

namespace levin::fuzz {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kMark = R"({"__metadata__":{"levin.checksum":")";
constexpr std::string_view kZeros = "0000000000000000";
constexpr size_t kDigitsAt = 8 + kMark.size();

uint64_t length_of(std::string_view file) {
  uint64_t length = 0;
  if (file.size() >= 8) std::memcpy(&length, file.data(), 8);
  return length;
}

std::string hash_of(std::string_view bytes) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016lx", static_cast<unsigned long>(XXH3_64bits(bytes.data(), bytes.size())));
  return digits;
}

std::string header_hash(std::string header) {
  header.replace(kDigitsAt, kZeros.size(), kZeros);
  return hash_of(header);
}

// Returns a discarded value if `text` is not JSON, or nests so deep that printing it could crash the fuzzer.
Json parsed(std::string_view text) {
  const auto watch = [](int depth, Json::parse_event_t, Json&) {
    if (depth > 64) throw std::out_of_range("deep");
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const std::exception&) {
    return Json(Json::value_t::discarded);
  }
}

// Returns the header with its __metadata__, or a discarded value.
Json json_of(std::string_view file) {
  const uint64_t length = length_of(file);
  if (file.size() < 8 || length > file.size() - 8) return Json(Json::value_t::discarded);
  const Json header = parsed(file.substr(8, length));
  const bool usable = header.is_object() && header.contains("__metadata__") && header["__metadata__"].is_object();
  return usable ? header : Json(Json::value_t::discarded);
}

std::string text_of(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void put_header(std::string& file, const Json& header) {
  const std::string data = file.substr(8 + length_of(file));
  const std::string text = text_of(header);
  const uint64_t length = text.size();
  file.assign(8, '\0');
  std::memcpy(file.data(), &length, 8);
  file += text + data;
}

// Overwrites digits with digits, so that no other byte of the header changes.
void repair_tensors(std::string& file) {
  const Json header = json_of(file);
  if (header.is_discarded()) return;
  const size_t data_at = 8 + length_of(file);
  for (const auto& [name, entry] : header.items()) {
    if (!entry.is_object() || !entry.contains("data_offsets")) continue;
    const Json& offsets = entry["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned()) {
      continue;
    }
    const auto begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
    if (begin > end || end > file.size() - data_at) continue;
    const std::string key = text_of("xxh3:" + name) + ":\"";
    const size_t at = file.find(key);
    if (at == std::string::npos || at + key.size() + 16 > data_at) continue;
    file.replace(at + key.size(), 16, hash_of(std::string_view(file).substr(data_at + begin, end - begin)));
  }
}

Json odd_value(std::minstd_rand& random) {
  static const std::vector<Json> values{0,
                                        1,
                                        2,
                                        4,
                                        8,
                                        -1,
                                        64,
                                        65,
                                        255,
                                        65536,
                                        INT32_MAX,
                                        INT64_MAX,
                                        INT64_MIN,
                                        UINT64_MAX,
                                        4611686018427387904,
                                        1.5,
                                        1e300,
                                        true,
                                        nullptr,
                                        "",
                                        "F32",
                                        "BOOL",
                                        "U8",
                                        "F8_E5M2",
                                        "1",
                                        "2",
                                        "{}",
                                        "[]",
                                        "null",
                                        "{\"a\":{\"plain\":\"1e-3\"}}",
                                        Json::array(),
                                        Json::object(),
                                        Json::array({0, 0}),
                                        Json::array({0, 8}),
                                        Json::array({0, INT64_MAX}),
                                        Json{{"plain", 1}},
                                        Json{{"dtype", "F32"}, {"shape", {0}}, {"data_offsets", {0, 0}}}};
  return values[random() % values.size()];
}

template <class Container>
auto any_of(Container& container, std::minstd_rand& random) {
  return std::next(container.begin(), static_cast<ptrdiff_t>(random() % container.size()));
}

// Descends the tree at random and changes the node where it stops.
void change(Json& value, std::minstd_rand& random, const MutateBytes& mutate_bytes) {
  if (value.is_structured() && !value.empty() && random() % 8 != 0) {
    const auto chosen = any_of(value, random);
    const unsigned what = random() % 16;
    if (what == 0) {
      value.erase(chosen);
    } else if (what == 1 && value.is_object()) {
      value[chosen.key() + "+"] = Json(*chosen);
    } else if (what == 1) {
      value.push_back(Json(*chosen));
    } else {
      change(*chosen, random, mutate_bytes);
    }
  } else if (value.is_string() && random() % 4 != 0) {
    auto text = value.get<std::string>();
    mutate_bytes(text, text.size() + 64);
    value = text;
  } else if (value.is_number_integer() && random() % 2 == 0) {
    value = value.get<uint64_t>() + random() % 17 - 8;  // wraps
  } else {
    value = odd_value(random);
  }
}

}  // namespace

bool is_trusted(std::string_view file) {
  const uint64_t length = length_of(file);
  if (length < kMark.size() + kZeros.size() || file.size() < 8 || length > file.size() - 8) return false;
  return file.substr(8).starts_with(kMark) &&
         file.substr(kDigitsAt, kZeros.size()) == header_hash(std::string(file.substr(0, 8 + length)));
}

void trust(std::string& file, bool tensors_too) {
  file.resize(std::max(file.size(), kDigitsAt + kZeros.size() + 1), ' ');
  uint64_t length = length_of(file);
  if (length < kMark.size() + kZeros.size() || length > file.size() - 8) {
    length = file.size() - 8;
    std::memcpy(file.data(), &length, 8);
  }
  file.replace(8, kMark.size(), kMark);
  if (tensors_too) repair_tensors(file);
  file.replace(kDigitsAt, kZeros.size(), header_hash(file.substr(0, 8 + length)));
}

void change_data(std::string& file, const MutateBytes& mutate_bytes) {
  const uint64_t length = length_of(file);
  if (file.size() < 8 || length >= file.size() - 8) return;
  std::string data = file.substr(8 + length);
  mutate_bytes(data, data.size());
  data.resize(file.size() - 8 - length);
  file.replace(8 + length, std::string::npos, data);
}

bool change_header(std::string& file, std::minstd_rand& random, const MutateBytes& mutate_bytes) {
  Json header = json_of(file);
  if (header.is_discarded()) return false;
  Json& values = header["__metadata__"]["levin.values"];
  Json tree = values.is_string() ? parsed(values.get<std::string>()) : Json(Json::value_t::discarded);
  const bool in_values = !tree.is_discarded() && random() % 2 == 0;
  for (unsigned times = 1 + random() % 3; times > 0; --times) {
    Json& root = in_values ? tree : header;
    if (root.is_structured() && !root.empty()) change(*any_of(root, random), random, mutate_bytes);
  }
  if (in_values) values = text_of(tree);
  put_header(file, header);
  return true;
}

}  // namespace levin::fuzz
