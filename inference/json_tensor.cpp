#include "levin/inference/json_tensor.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "levin/checkpoint/strict_json.h"
#include "levin/core/options/error.h"
#include "levin/core/tensors.h"

namespace levin {

namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& place, const std::string& what) {
  throw DataError("JSON" + (place.empty() ? "" : " at " + place) + ": " + what);
}

std::string seen(const Json& value) {
  if (value.is_array()) return "a list of " + std::to_string(value.size());
  if (value.is_number()) return cut_text(value.dump());
  return value.is_null() ? "null"
                         : std::string("a") + (value.is_object() ? "n object" : " " + std::string(value.type_name()));
}

std::vector<int64_t> shape_of(const Json& value) {
  std::vector<int64_t> shape;
  for (const Json* level = &value; level->is_array(); level = &level->front()) {
    shape.push_back(static_cast<int64_t>(level->size()));
    if (level->empty()) break;
  }
  return shape;
}

// The numbers of nested lists in their order, as doubles or as whole numbers.
class Reader {
 public:
  Reader(std::vector<int64_t> shape, at::ScalarType dtype)
      : shape_(std::move(shape)), dtype_(dtype), is_whole_(!at::isFloatingType(dtype)) {}

  at::Tensor read(const Json& value) {
    visit(value, 0);
    const at::Tensor tensor = at::empty(shape_, at::TensorOptions(is_whole_ ? at::kLong : at::kDouble));
    if (is_whole_) std::copy(whole_.begin(), whole_.end(), tensor.mutable_data_ptr<int64_t>());
    if (!is_whole_) std::copy(real_.begin(), real_.end(), tensor.mutable_data_ptr<double>());
    return tensor.to(dtype_);
  }

 private:
  void visit(const Json& value, size_t level) {
    if (level == shape_.size()) return take(value);
    if (!value.is_array())
      refuse(place(), "expected a list of " + std::to_string(shape_[level]) + ", got " + seen(value) + ".");
    if (static_cast<int64_t>(value.size()) != shape_[level]) {
      refuse(place(), "expected a list of " + std::to_string(shape_[level]) + " as before it, got " + seen(value) +
                          ". All lists of a level have the same length.");
    }
    for (size_t k = 0; k < value.size(); ++k) {
      indices_.push_back(k);
      visit(value[k], level + 1);
      indices_.pop_back();
    }
  }

  void take(const Json& value) {
    if (!value.is_number() && !(dtype_ == at::kBool && value.is_boolean())) {
      refuse(place(), "expected a number, got " + seen(value) + ".");
    }
    if (is_whole_) return whole_.push_back(whole_number(value));
    real_.push_back(value.get<double>());
    if (std::abs(real_.back()) > largest()) {
      refuse(place(), cut_text(value.dump()) + " is more than " + c10::toString(dtype_) + " can hold.");
    }
  }

  [[nodiscard]] double largest() const {
    switch (dtype_) {
      case at::kHalf: return std::numeric_limits<at::Half>::max();
      case at::kBFloat16: return std::numeric_limits<at::BFloat16>::max();
      case at::kFloat: return std::numeric_limits<float>::max();
      default: return std::numeric_limits<double>::max();
    }
  }

  [[nodiscard]] int64_t whole_number(const Json& value) const {
    if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
    const bool fits = value.is_number_integer() && (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
    const int64_t number = fits ? value.get<int64_t>() : 0;
    const auto [low, high] = limits();
    if (fits && number >= low && number <= high) return number;
    refuse(place(), "expected a whole number from " + std::to_string(low) + " to " + std::to_string(high) + ", got " +
                        seen(value) + ".");
  }

  [[nodiscard]] std::pair<int64_t, int64_t> limits() const {
    switch (dtype_) {
      case at::kBool: return {0, 1};
      case at::kByte: return {0, UINT8_MAX};
      case at::kChar: return {INT8_MIN, INT8_MAX};
      case at::kShort: return {INT16_MIN, INT16_MAX};
      case at::kInt: return {INT32_MIN, INT32_MAX};
      default: return {INT64_MIN, INT64_MAX};
    }
  }

  [[nodiscard]] std::string place() const {
    std::string text;
    for (const size_t index : indices_) text += "[" + std::to_string(index) + "]";
    return text;
  }

  std::vector<int64_t> shape_;
  at::ScalarType dtype_;
  bool is_whole_;
  std::vector<size_t> indices_ = {};  // of the value that is read
  std::vector<double> real_ = {};
  std::vector<int64_t> whole_ = {};
};

template <class Number>
void append_number(std::string& text, Number number) {
  if constexpr (std::is_floating_point_v<Number>) {
    if (!std::isfinite(number)) {
      text += "null";
      return;
    }
  }
  char digits[64];
  text.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}

template <class Number>
void append_level(std::string& text, const Number*& numbers, at::IntArrayRef shape) {
  if (shape.empty()) {
    if constexpr (std::is_same_v<Number, bool>) text += *numbers ? "true" : "false";
    if constexpr (!std::is_same_v<Number, bool>) append_number(text, *numbers);
    ++numbers;
    return;
  }
  text += '[';
  for (int64_t k = 0; k < shape[0]; ++k) {
    if (k > 0) text += ',';
    append_level(text, numbers, shape.slice(1));
  }
  text += ']';
}

template <class Number>
std::string text_of(const at::Tensor& tensor) {
  std::string text;
  const auto* numbers = tensor.const_data_ptr<Number>();
  append_level(text, numbers, tensor.sizes());
  return text;
}

}  // namespace

at::Tensor tensor_from_json(const std::string& text, at::ScalarType dtype) {
  static constexpr std::array types{at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong,
                                    at::kInt,   at::kShort,  at::kChar, at::kByte,     at::kBool};
  if (std::find(types.begin(), types.end(), dtype) == types.end()) {
    throw Error(std::string("tensor_from_json: ") + c10::toString(dtype) +
                " is not supported. Read a different type, and convert it.");
  }
  Json value;
  try {
    value = detail::parse_strictly<Json>(text);
  } catch (const CheckpointError& error) {  // the reader of checkpoints' JSON
    refuse("", std::string(error.what()) + ".");
  }
  return Reader(shape_of(value), dtype).read(value);
}

std::string tensor_to_json(const at::Tensor& tensor) {
  if (!tensor.defined()) throw Error("tensor_to_json: the tensor is undefined.");
  const at::Tensor here = tensor.detach().cpu().contiguous();
  const at::ScalarType type = here.scalar_type();
  if (type == at::kBool) return text_of<bool>(here);
  if (type == at::kDouble) return text_of<double>(here);
  if (at::isIntegralType(type, /*includeBool=*/false)) return text_of<int64_t>(here.to(at::kLong));
  if (at::isFloatingType(type)) return text_of<float>(here.to(at::kFloat));
  throw Error(std::string("tensor_to_json: JSON has no numbers for ") + c10::toString(type) + ". Convert the tensor " +
              shape_text(tensor.sizes()) + " first.");
}

}  // namespace levin
