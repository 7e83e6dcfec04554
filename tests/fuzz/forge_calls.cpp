#include "forge_calls.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "levin/models/exported/allowed_operators.h"

namespace levin::fuzz {
namespace {

using nlohmann::json;

class Bytes {
 public:
  explicit Bytes(std::string_view bytes) : bytes_(bytes) {}

  [[nodiscard]] bool is_empty() const { return at_ >= bytes_.size(); }
  size_t pick(size_t count) { return count == 0 ? 0 : next() % count; }
  template <class List>
  const auto& one_of(const List& list) {
    return list[pick(list.size())];
  }
  size_t next() { return is_empty() ? 0 : static_cast<uint8_t>(bytes_[at_++]); }

 private:
  std::string_view bytes_;
  size_t at_ = 0;
};

constexpr std::array kTensors = {
    "x",    "p_first_weight", "p_first_bias", "f24", "f46",   "f234", "f1234", "f12322", "d46",  "b46", "c46",
    "half", "none",           "i6",           "i23", "i1123", "big",  "minus", "two",    "mask", "zero"};
constexpr std::array<int64_t, 18> kIntegers = {0,  1,  1,  1,   2,          2,           3, 4,         6,
                                               -1, -2, 24, 100, 2147483647, -2147483647, 8, INT32_MIN, INT64_MIN};
constexpr std::array kReals = {0.0, 0.5, 1.0, 2.0, -1.0, 1e-5, 1e-30, 1e30, 0.1, 3.7};
constexpr std::array kStrings = {"none",  "mean",    "sum",      "reflect",   "constant", "replicate", "circular",
                                 "floor", "trunc",   "tanh",     "left",      "right",    "ij",        "xy",
                                 "ortho", "forward", "backward", "fro",       "nuc",      "amax",      "amin",
                                 "prod",  "linear",  "higher",   "ij,jk->ik", "same",     "valid",     "reduced"};
constexpr std::array<int64_t, 8> kDtypes = {7, 8, 5, 12, 13, 1, 10, 4};

class Caller {
 public:
  explicit Caller(Bytes& bytes) : bytes_(bytes), tensors_(kTensors.begin(), kTensors.end()) {}

  json call(const c10::FunctionSchema& schema, const std::string& result) {
    json arguments = json::object();
    for (const c10::Argument& argument : schema.arguments()) {
      const bool may_lack = argument.default_value() || argument.type()->kind() == c10::TypeKind::OptionalType;
      if (may_lack && bytes_.pick(2) == 0) continue;
      const auto value = value_of(argument.real_type(), argument.N().value_or(-1));
      if (!value.is_discarded()) arguments[argument.name()] = value;
    }
    const std::string overload = schema.overload_name().empty() ? "default" : schema.overload_name();
    const std::string name = schema.name().substr(std::string("aten::").size()) + "." + overload;
    const bool gives_tensor =
        !schema.returns().empty() && schema.returns()[0].type()->kind() == c10::TypeKind::TensorType;
    if (!gives_tensor) return {name, arguments};
    tensors_.push_back(result);
    return {name, arguments, result};
  }

 private:
  // Often the same one again, which fits most operators that take two.
  std::string tensor() {
    if (bytes_.pick(2) == 0) last_ = bytes_.pick(3) == 0 ? tensors_.back() : bytes_.one_of(tensors_);
    return "$" + last_;
  }

  // Discarded: a kind that programs do not have.
  json value_of(const c10::TypePtr& type, int32_t count) {
    switch (type->kind()) {
      case c10::TypeKind::OptionalType: return value_of(type->castRaw<c10::OptionalType>()->getElementType(), count);
      case c10::TypeKind::TensorType: return tensor();
      case c10::TypeKind::IntType:
      case c10::TypeKind::SymIntType: return bytes_.one_of(kIntegers);
      case c10::TypeKind::FloatType: return bytes_.one_of(kReals);
      case c10::TypeKind::BoolType: return bytes_.pick(2) == 1;
      case c10::TypeKind::NumberType:
        return bytes_.pick(2) == 0 ? json(bytes_.one_of(kReals)) : json(bytes_.one_of(kIntegers));
      case c10::TypeKind::StringType: return bytes_.one_of(kStrings);
      case c10::TypeKind::ScalarTypeType: return {{"as_scalar_type", bytes_.one_of(kDtypes)}};
      case c10::TypeKind::MemoryFormatType: return {{"as_memory_format", 1 + bytes_.pick(4)}};
      case c10::TypeKind::ListType: return list_of(type->castRaw<c10::ListType>()->getElementType(), count);
      default: return json(json::value_t::discarded);
    }
  }

  json list_of(const c10::TypePtr& element, int32_t count) {
    const size_t items = count > 1 && bytes_.pick(8) != 0 ? static_cast<size_t>(count) : bytes_.pick(6);
    const bool is_optional = element->kind() == c10::TypeKind::OptionalType;
    json list = json::array();
    for (size_t k = 0; k < items; ++k) {
      json item = value_of(element, -1);
      if (item.is_discarded()) return item;
      if (is_optional) item = {{"as_tensor", {{"name", item.get<std::string>().substr(1)}}}};
      list.push_back(std::move(item));
    }
    if (is_optional) return {{"as_optional_tensors", list}};
    if (element->kind() == c10::TypeKind::FloatType) return {{"as_floats", list}};
    if (element->kind() == c10::TypeKind::BoolType) return {{"as_bools", list}};
    if (element->kind() == c10::TypeKind::NumberType) return json(json::value_t::discarded);
    return list;
  }

  Bytes& bytes_;
  std::vector<std::string> tensors_;
  std::string last_ = "f46";
};

}  // namespace

const std::vector<c10::OperatorHandle>& program_operators() {
  static const std::vector<c10::OperatorHandle> all = [] {
    std::vector<c10::OperatorHandle> found;
    for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
      const auto op = c10::Dispatcher::singleton().findSchema(name);
      if (op && exported::is_allowed_operator(op->schema())) found.push_back(*op);
    }
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
      return a.schema().name() + "." + a.schema().overload_name() <
             b.schema().name() + "." + b.schema().overload_name();
    });
    return found;
  }();
  return all;
}

nlohmann::json calls_of(std::string_view text, const std::vector<c10::OperatorHandle>& operators) {
  Bytes bytes(text);
  Caller caller(bytes);
  json calls = json::array();
  for (size_t k = 0; k < 5 && !bytes.is_empty(); ++k) {
    const size_t index = bytes.next() * 256 + bytes.next();
    calls.push_back(caller.call(operators[index % operators.size()].schema(), "r" + std::to_string(k)));
  }
  return calls;
}

}  // namespace levin::fuzz
