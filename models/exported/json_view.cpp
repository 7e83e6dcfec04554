#include "levin/models/exported/json_view.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "levin/core/options/error.h"

namespace levin::exported {

namespace {

// By their numbers in a file, from 1 on, and from 28 on.
constexpr std::array kDtypes = {at::kByte,          at::kChar,  at::kShort,   at::kInt,         at::kLong,
                                at::kHalf,          at::kFloat, at::kDouble,  at::kComplexHalf, at::kComplexFloat,
                                at::kComplexDouble, at::kBool,  at::kBFloat16};
constexpr std::array kLaterDtypes = {at::kUInt16, at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kFloat8_e4m3fnuz,
                                     at::kFloat8_e5m2fnuz};
constexpr int64_t kFirstLater = 28;

}  // namespace

JsonView::JsonView(const nlohmann::json& json, const JsonView& parent, std::string step)
    : json_(&json), file_(parent.file_), place_(parent.place_ + std::move(step)) {}

void JsonView::refuse(const std::string& what) const {
  throw Error(*file_ + ": " + (place_.empty() ? "the whole" : cut_text(place_.substr(place_[0] == '.' ? 1 : 0), 200)) +
              " " + what + ".");
}

void JsonView::expected(const std::string& what) const {
  refuse("must be " + what + ", not " +
         (json_->is_structured() ? json_->type_name()
                                 : cut_text(json_->dump(-1, ' ', true, nlohmann::json::error_handler_t::replace))));
}

JsonView JsonView::operator[](const char* key) const {
  if (!json_->is_object()) expected("an object");
  const auto found = json_->find(key);
  if (found == json_->end()) refuse(std::string("has no \"") + key + "\"");
  return {*found, *this, std::string(".") + key};
}

std::optional<JsonView> JsonView::find(const char* key) const {
  if (!json_->is_object()) expected("an object");
  const auto found = json_->find(key);
  if (found == json_->end() || found->is_null()) return std::nullopt;
  return JsonView(*found, *this, std::string(".") + key);
}

std::vector<std::pair<std::string, JsonView>> JsonView::members() const {
  if (!json_->is_object()) expected("an object");
  std::vector<std::pair<std::string, JsonView>> all;
  all.reserve(json_->size());
  for (const auto& [key, value] : json_->items()) all.emplace_back(key, JsonView(value, *this, "." + key));
  return all;
}

std::vector<JsonView> JsonView::items() const {
  if (!json_->is_array()) expected("a list");
  std::vector<JsonView> all;
  all.reserve(json_->size());
  for (const auto& value : *json_) all.push_back(JsonView(value, *this, "[" + std::to_string(all.size()) + "]"));
  return all;
}

std::pair<std::string, JsonView> JsonView::only_member() const {
  if (!json_->is_object() || json_->size() != 1) expected("an object with one member");
  const auto first = json_->items().begin();
  return {first.key(), JsonView(first.value(), *this, "." + first.key())};
}

bool JsonView::is_null() const {
  return json_->is_null();
}

bool JsonView::is_text() const {
  return json_->is_string();
}

std::string JsonView::text() const {
  if (!json_->is_string()) expected("a string");
  return json_->get<std::string>();
}

bool JsonView::boolean() const {
  if (!json_->is_boolean()) expected("true or false");
  return json_->get<bool>();
}

int64_t JsonView::integer() const {
  const bool fits = json_->is_number_integer() &&
                    (!json_->is_number_unsigned() ||
                     json_->get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  if (!fits) expected("a whole number of 64 bits");
  return json_->get<int64_t>();
}

double JsonView::real() const {
  if (json_->is_string()) {
    const std::string name = json_->get<std::string>();
    if (name == "Infinity") return std::numeric_limits<double>::infinity();
    if (name == "-Infinity") return -std::numeric_limits<double>::infinity();
    if (name == "NaN") return std::numeric_limits<double>::quiet_NaN();
  }
  if (!json_->is_number()) expected("a number");
  return json_->get<double>();
}

bool is_dtype(int64_t value) {
  const auto is_it = [value](c10::ScalarType dtype) { return static_cast<int64_t>(dtype) == value; };
  return std::any_of(kDtypes.begin(), kDtypes.end(), is_it) ||
         std::any_of(kLaterDtypes.begin(), kLaterDtypes.end(), is_it);
}

c10::ScalarType read_dtype(const JsonView& number) {
  const int64_t value = number.integer(), later = value - kFirstLater;
  if (value >= 1 && value <= std::ssize(kDtypes)) return kDtypes[static_cast<size_t>(value - 1)];
  if (later >= 0 && later < std::ssize(kLaterDtypes)) return kLaterDtypes[static_cast<size_t>(later)];
  number.refuse("is " + std::to_string(value) + ", which is not a dtype of torch.export");
}

c10::Layout read_layout(const JsonView& number) {
  if (number.integer() == 7) return c10::kStrided;
  number.refuse("is layout " + std::to_string(number.integer()) +
                "; Levin has strided tensors (7) only, so densify the model's sparse tensors before the export");
}

c10::MemoryFormat read_memory_format(const JsonView& number) {
  constexpr std::array<c10::MemoryFormat, 4> formats = {c10::MemoryFormat::Contiguous, c10::MemoryFormat::ChannelsLast,
                                                        c10::MemoryFormat::ChannelsLast3d, c10::MemoryFormat::Preserve};
  const int64_t wanted = number.integer();
  if (wanted < 1 || wanted > 4)
    number.refuse("is " + std::to_string(wanted) + ", which is not a memory format of torch.export");
  return formats[static_cast<size_t>(wanted - 1)];
}

c10::Device read_device(const JsonView& device) {
  const std::string type = device["type"].text();
  const auto index = device.find("index");
  const int64_t number = index ? index->integer() : -1;
  if (type == "cpu") return c10::Device(c10::kCPU);
  if (type == "meta") return c10::Device(c10::kMeta);
  if (number < -1 || number > 127) device.refuse("has the index " + std::to_string(number));
  if (type == "cuda") return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(number));
  device.refuse("is on \"" + cut_text(type) + "\"; export the model on the CPU, Levin places it");
}

}  // namespace levin::exported
