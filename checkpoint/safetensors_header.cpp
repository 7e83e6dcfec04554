#include "levin/checkpoint/safetensors_header.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/libtorch/scalar_types.h"
#include "levin/libtorch/version.h"

namespace levin {

namespace {

using HeaderJson = nlohmann::json;

constexpr std::array kDTypes{std::pair{"F64", at::kDouble},
                             std::pair{"F32", at::kFloat},
                             std::pair{"F16", at::kHalf},
                             std::pair{"BF16", at::kBFloat16},
                             std::pair{"F8_E4M3", at::kFloat8_e4m3fn},
                             std::pair{"F8_E5M2", at::kFloat8_e5m2},
                             std::pair{"F8_E8M0", kFloat8_e8m0fnu},
                             std::pair{"C64", at::kComplexFloat},
                             std::pair{"I64", at::kLong},
                             std::pair{"I32", at::kInt},
                             std::pair{"I16", at::kShort},
                             std::pair{"I8", at::kChar},
                             std::pair{"U64", at::kUInt64},
                             std::pair{"U32", at::kUInt32},
                             std::pair{"U16", at::kUInt16},
                             std::pair{"U8", at::kByte},
                             std::pair{"BOOL", at::kBool}};

constexpr size_t kMaxDims = 64;  // as LibTorch

[[noreturn]] void bad_entry(const std::string& name, const std::string& what) {
  throw CheckpointError("the header's entry of tensor \"" + cut_text(name) + "\" is wrong: " + what);
}

[[noreturn]] void twice(const std::string& key) {
  throw CheckpointError("JSON has the key \"" + cut_text(key) + "\" twice in one object");
}

// Bytes of the tensor. A dimension of 0 counts as 1 in the overflow check, because strides are products too.
uint64_t checked_bytes(const SafetensorsEntry& entry) {
  uint64_t bytes = c10::elementSize(entry.dtype);
  uint64_t strides = bytes;
  for (const int64_t size : entry.shape) {
    const auto wide = static_cast<uint64_t>(size);
    if (__builtin_mul_overflow(strides, std::max<uint64_t>(wide, 1), &strides) || strides > INT64_MAX) {
      bad_entry(entry.name, "its shape overflows");
    }
    bytes *= wide;
  }
  return bytes;
}

// Handles the parser's events. `Place` is the open object or list.
class HeaderReader final : public nlohmann::json_sax<HeaderJson> {
 public:
  explicit HeaderReader(size_t text_bytes) : text_bytes_(text_bytes) {}
  [[nodiscard]] SafetensorsHeader take() { return std::move(header_); }

  bool null() override { return other("null"); }
  bool boolean(bool value) override { return other(value ? "true" : "false"); }
  bool number_float(double, const std::string& text) override { return other(text); }
  bool number_integer(int64_t value) override { return other(std::to_string(value)); }  // a negative one
  bool number_unsigned(uint64_t value) override;
  bool string(std::string& text) override;
  bool binary(HeaderJson::binary_t&) override { return other("bytes"); }
  bool start_object(size_t) override;
  bool end_object() override;
  bool start_array(size_t) override;
  bool end_array() override;
  bool key(std::string& name) override;
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception&) override {
    throw CheckpointError("not JSON at byte " + std::to_string(at) + " of " + std::to_string(text_bytes_));
  }

 private:
  enum class Place { outside, header, metadata, entry, shape, offsets };
  enum class Field { none, dtype, shape, offsets };

  [[noreturn]] void refuse(const std::string& value) const;
  bool other(const std::string& value) const { refuse(value); }
  void add_entry();

  size_t text_bytes_;
  SafetensorsHeader header_;
  Place place_ = Place::outside;
  Field field_ = Field::none;
  std::string key_;  // the last key of the metadata
  bool has_metadata_ = false;
  bool in_metadata_key_ = false;  // the header's last key is __metadata__
  SafetensorsEntry entry_;
  size_t num_offsets_ = 0;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
};

// A value in a place where it is not allowed.
void HeaderReader::refuse(const std::string& value) const {
  switch (place_) {
    case Place::outside: throw CheckpointError("its header is not a map");
    case Place::header:
      if (in_metadata_key_) throw CheckpointError("its __metadata__ is not a map");
      bad_entry(entry_.name, "it must have dtype, shape and data_offsets");
    case Place::metadata: throw CheckpointError("its __metadata__ \"" + cut_text(key_) + "\" is not text");
    case Place::entry:
      if (field_ == Field::dtype) bad_entry(entry_.name, "it has no dtype");
      if (field_ == Field::shape) bad_entry(entry_.name, "its shape is not a list of at most 64 sizes");
      bad_entry(entry_.name, "data_offsets are not two numbers");
    case Place::shape: bad_entry(entry_.name, "size " + cut_text(value) + " is not a whole number >= 0");
    case Place::offsets: break;
  }
  bad_entry(entry_.name, "offset " + cut_text(value) + " is not a whole number >= 0");
}

bool HeaderReader::number_unsigned(uint64_t value) {
  if (place_ == Place::shape) {
    if (entry_.shape.size() == kMaxDims) bad_entry(entry_.name, "its shape is not a list of at most 64 sizes");
    if (value > INT64_MAX) bad_entry(entry_.name, "its shape overflows");
    entry_.shape.push_back(static_cast<int64_t>(value));
  } else if (place_ == Place::offsets) {
    if (num_offsets_ == 2) bad_entry(entry_.name, "data_offsets are not two numbers");
    (num_offsets_++ == 0 ? entry_.begin : entry_.end) = value;
  } else {
    refuse(std::to_string(value));
  }
  return true;
}

bool HeaderReader::string(std::string& text) {
  if (place_ == Place::metadata) {
    if (header_.metadata.size() == kMaxSafetensorsEntries) {
      throw CheckpointError("its __metadata__ holds more than " + std::to_string(kMaxSafetensorsEntries) + " entries");
    }
    if (!header_.metadata.try_emplace(std::move(key_), std::move(text)).second) twice(key_);
    return true;
  }
  if (place_ != Place::entry || field_ != Field::dtype) refuse("\"" + cut_text(text) + "\"");
  if (!find_safetensors_dtype(text, entry_.dtype)) {
    const std::string dtype = "dtype \"" + cut_text(text) + "\"";
    bad_entry(entry_.name, text == "F8_E8M0" ? needs_torch_text(dtype, 2, 7) : dtype + " is unknown");
  }
  return true;
}

bool HeaderReader::start_object(size_t) {
  if (place_ == Place::outside) {
    place_ = Place::header;
  } else if (place_ == Place::header) {
    place_ = in_metadata_key_ ? Place::metadata : Place::entry;
  } else {
    refuse("{");
  }
  return true;
}

bool HeaderReader::end_object() {
  if (place_ == Place::entry) add_entry();
  place_ = place_ == Place::header ? Place::outside : Place::header;
  return true;
}

bool HeaderReader::start_array(size_t) {
  if (place_ != Place::entry || (field_ != Field::shape && field_ != Field::offsets)) refuse("[");
  place_ = field_ == Field::shape ? Place::shape : Place::offsets;
  return true;
}

bool HeaderReader::end_array() {
  if (place_ == Place::offsets && num_offsets_ != 2) bad_entry(entry_.name, "data_offsets are not two numbers");
  place_ = Place::entry;
  return true;
}

bool HeaderReader::key(std::string& name) {
  if (place_ == Place::metadata) {
    key_ = std::move(name);
  } else if (place_ == Place::header) {
    in_metadata_key_ = name == "__metadata__";
    if (in_metadata_key_ && std::exchange(has_metadata_, true)) twice(name);
    if (in_metadata_key_) return true;
    entry_ = SafetensorsEntry{name};  // a copy of exactly the name's length
    num_offsets_ = 0;
    has_dtype_ = has_shape_ = has_offsets_ = false;
  } else {
    field_ = name == "dtype"          ? Field::dtype
             : name == "shape"        ? Field::shape
             : name == "data_offsets" ? Field::offsets
                                      : Field::none;
    if (field_ == Field::none) bad_entry(entry_.name, "it must have dtype, shape and data_offsets");
    bool& has = field_ == Field::dtype ? has_dtype_ : field_ == Field::shape ? has_shape_ : has_offsets_;
    if (std::exchange(has, true)) twice(name);
  }
  return true;
}

void HeaderReader::add_entry() {
  if (!has_dtype_ || !has_shape_ || !has_offsets_) {
    bad_entry(entry_.name, "it must have dtype, shape and data_offsets");
  }
  if (entry_.end < entry_.begin || checked_bytes(entry_) != entry_.bytes()) {
    bad_entry(entry_.name,
              "bytes " + std::to_string(entry_.begin) + " to " + std::to_string(entry_.end) + " do not fit its shape");
  }
  if (header_.entries.size() == kMaxSafetensorsEntries) {
    throw CheckpointError("its header holds more than " + std::to_string(kMaxSafetensorsEntries) + " tensors");
  }
  entry_.shape.shrink_to_fit();
  header_.entries.push_back(std::move(entry_));
}

void check_names(const std::vector<SafetensorsEntry>& entries) {
  std::unordered_set<std::string_view> names(entries.size());
  for (const SafetensorsEntry& entry : entries) {
    if (!names.insert(entry.name).second) twice(entry.name);
  }
}

// Sorts them in the order of their data, which they fill without gap or overlap.
void put_in_order(std::vector<SafetensorsEntry>& entries, uint64_t data_bytes) {
  std::sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  uint64_t expected = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != expected) {
      bad_entry(entry.name, "its data begin at byte " + std::to_string(entry.begin) + " where " +
                                std::to_string(expected) + " was expected");
    }
    expected = entry.end;
  }
  if (expected != data_bytes) {
    throw CheckpointError("it holds " + std::to_string(data_bytes) + " bytes of data where its header says " +
                          std::to_string(expected) + ": it was cut short or added to");
  }
}

}  // namespace

const char* safetensors_dtype(at::ScalarType type) {
  for (const auto& [word, known] : kDTypes) {
    if (known == type) return word;
  }
  return nullptr;
}

bool find_safetensors_dtype(std::string_view word, at::ScalarType& type) {
  const auto* const found =
      std::find_if(kDTypes.begin(), kDTypes.end(), [&](const auto& known) { return word == known.first; });
  if (found == kDTypes.end() || found->second == at::ScalarType::Undefined) return false;
  type = found->second;
  return true;
}

SafetensorsHeader parse_safetensors_header(std::string_view text, uint64_t data_bytes) {
  HeaderReader reader(text.size());
  HeaderJson::sax_parse(text.begin(), text.end(), &reader);
  SafetensorsHeader header = reader.take();
  check_names(header.entries);
  put_in_order(header.entries, data_bytes);
  return header;
}

}  // namespace levin
