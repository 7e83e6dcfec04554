#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "levin/data/streams/values.h"

namespace levin::streams {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxDepth = 100;
constexpr size_t kMaxMembers = 10'000;  // of one object: looking up a member takes time in proportion to them
// Python writes three numbers that JSON does not know. They become strings that start so and then numbers.
constexpr std::string_view kPythonNumber("\0python:", 8);
constexpr std::string_view kPythonNumberEscaped = "\"\\u0000python:";
constexpr std::pair<std::string_view, double> kPythonNumbers[] = {
    {"NaN", std::numeric_limits<double>::quiet_NaN()},
    {"-Infinity", -std::numeric_limits<double>::infinity()},
    {"Infinity", std::numeric_limits<double>::infinity()}};

// Builds a value from the events of nlohmann's parser, which does not recurse. The first problem ends it.
class Builder {
 public:
  [[nodiscard]] const std::string& problem() const { return problem_; }
  [[nodiscard]] size_t position() const { return position_; }
  [[nodiscard]] Json& value() { return root_; }

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(int64_t value) { return put(value); }
  bool number_unsigned(uint64_t value) {
    if (value <= static_cast<uint64_t>(INT64_MAX)) return put(static_cast<int64_t>(value));
    return refuse("the integer " + std::to_string(value) + " does not fit into 64 bits");
  }
  bool number_float(double value, const std::string& text) {
    if (text.find_first_of(".eE") == std::string::npos) {
      return refuse("the integer " + cut_text(text) + " does not fit into 64 bits");
    }
    return put(value);
  }
  bool string(std::string& text) {
    if (text.starts_with(kPythonNumber)) {
      for (const auto& [name, number] : kPythonNumbers) {
        if (std::string_view(text).substr(kPythonNumber.size()) == name) return put(number);
      }
    }
    return put(std::move(text));
  }
  bool binary(Json::binary_t& /*bytes*/) { return false; }
  bool start_object(size_t /*count*/) { return open(Json::object()); }
  bool key(std::string& name) {
    Json& object = *open_.back();
    if (object.size() >= kMaxMembers)
      return refuse("an object has more than " + std::to_string(kMaxMembers) + " members");
    key_ = &object[name];
    return true;
  }
  bool end_object() { return close(); }
  bool start_array(size_t /*count*/) { return open(Json::array()); }
  bool end_array() { return close(); }
  bool parse_error(size_t position, const std::string& /*token*/, const Json::exception& error) {
    const std::string what = error.what();
    const size_t colon = what.find(": ");
    problem_ = "expected JSON: " + cut_text(colon == std::string::npos ? what : what.substr(colon + 2), 300);
    position_ = position == 0 ? 0 : position - 1;
    return false;
  }

 private:
  bool refuse(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }
  Json* place(Json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    if (open_.back()->is_array()) {
      open_.back()->push_back(std::move(value));
      return &open_.back()->back();
    }
    return &(*key_ = std::move(value));
  }
  bool put(Json value) {
    (void)place(std::move(value));
    return true;
  }
  bool open(Json value) {
    if (open_.size() >= kMaxDepth) return refuse("values nest deeper than " + std::to_string(kMaxDepth));
    open_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Json root_ = nullptr;
  std::vector<Json*> open_ = {};  // a container does not move while one inside it is open
  Json* key_ = nullptr;
  std::string problem_ = {};
  size_t position_ = 0;
};

// `text` with Python's numbers as strings; nothing if it has none.
std::optional<std::string> without_python_numbers(std::string_view text) {
  if (text.find("NaN") == std::string_view::npos && text.find("Infinity") == std::string_view::npos) return {};
  std::string result;
  bool is_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    if (is_string && text[at] == '\\' && at + 1 < text.size()) {
      result += text[at++];
    } else if (text[at] == '"') {
      is_string = !is_string;
    } else if (!is_string) {
      const auto* found = std::find_if(std::begin(kPythonNumbers), std::end(kPythonNumbers),
                                       [&](const auto& number) { return text.substr(at).starts_with(number.first); });
      if (found != std::end(kPythonNumbers)) {
        result.append(kPythonNumberEscaped).append(found->first).append("\"");
        at += found->first.size() - 1;
        continue;
      }
    }
    result += text[at];
  }
  return result;
}

// The shape and type of a list of numbers, or of lists of them that are of the same shape.
struct Rectangle {
  std::vector<int64_t> sizes = {};
  at::ScalarType type = at::kLong;
};

bool is_number(const Json& value) {
  return value.is_number() || value.is_boolean();
}

// kLong and kDouble mix, as in NumPy; bools do not mix with numbers.
bool join_types(bool is_first, at::ScalarType other, at::ScalarType& type) {
  if (is_first || type == other) return (type = other, true);
  if (type == at::kBool || other == at::kBool) return false;
  type = at::kDouble;
  return true;
}

std::optional<Rectangle> rectangle_of(const Json& list) {
  Rectangle whole;
  bool is_first = true;
  for (const Json& item : list) {
    Rectangle inner;
    if (item.is_array()) {
      const auto found = rectangle_of(item);
      if (!found) return {};
      inner = *found;
    } else if (is_number(item)) {
      inner.type = item.is_boolean() ? at::kBool : item.is_number_float() ? at::kDouble : at::kLong;
    } else {
      return {};
    }
    if (!join_types(is_first, inner.type, whole.type)) return {};
    if (!is_first && whole.sizes != inner.sizes) return {};
    if (is_first) whole.sizes = std::move(inner.sizes);
    is_first = false;
  }
  if (whole.sizes.size() >= 64) return {};
  whole.sizes.insert(whole.sizes.begin(), static_cast<int64_t>(list.size()));
  return whole;
}

template <class T>
T* copy_numbers(const Json& list, T* to) {
  for (const Json& item : list) {
    if (item.is_array()) {
      to = copy_numbers(item, to);
    } else if (item.is_boolean()) {
      *to++ = static_cast<T>(item.get<bool>());
    } else {
      *to++ = item.get<T>();
    }
  }
  return to;
}

at::Tensor tensor_of(const Json& list, const Rectangle& rectangle) {
  at::Tensor tensor = at::empty(rectangle.sizes, at::TensorOptions().dtype(rectangle.type));
  if (rectangle.type == at::kBool) copy_numbers(list, tensor.mutable_data_ptr<bool>());
  if (rectangle.type == at::kLong) copy_numbers(list, tensor.mutable_data_ptr<int64_t>());
  if (rectangle.type == at::kDouble) copy_numbers(list, tensor.mutable_data_ptr<double>());
  return tensor;
}

// Lists of numbers that are not of the same shape; nothing if the list has other items.
std::optional<std::vector<at::Tensor>> ragged_of(const Json& list) {
  std::vector<at::Tensor> tensors;
  for (const Json& item : list) {
    const auto inner = item.is_array() ? rectangle_of(item) : std::nullopt;
    if (!inner) return {};
    tensors.push_back(tensor_of(item, *inner));
  }
  return tensors;
}

// Whether the numbers in lists of lists have a type in common, as a tensor or a list of tensors must.
bool has_one_type(const Json& list, bool& has_bool, bool& has_number) {
  for (const Json& item : list) {
    if (item.is_array() && !has_one_type(item, has_bool, has_number)) return false;
    has_bool = has_bool || item.is_boolean();
    has_number = has_number || item.is_number();
  }
  return !(has_bool && has_number);
}

void add_list(SampleBuilder& sample, const std::string& name, const Json& list) {
  if (const auto rectangle = rectangle_of(list)) return sample.add(name, tensor_of(list, *rectangle));
  bool has_bool = false, has_number = false;
  if (has_one_type(list, has_bool, has_number)) {
    if (auto ragged = ragged_of(list)) return sample.add(name, *std::move(ragged));
  }
  sample.add_text(name, list.dump());  // valid UTF-8, which the parser has checked
}

void add_value(SampleBuilder& sample, const std::string& name, Json& value) {
  if (value.is_object()) {
    for (auto& [key, inner] : value.items()) {
      const std::string field = name.empty() ? key : name + "." + key;
      if (sample.choice().wants(field)) add_value(sample, field, inner);
    }
    return;
  }
  if (!sample.choice().wants_whole(name)) return;
  if (value.is_boolean()) return sample.add(name, scalar_of(value.get<bool>()));
  if (value.is_number_float()) return sample.add(name, scalar_of(value.get<double>()));
  if (value.is_number()) return sample.add(name, scalar_of(value.get<int64_t>()));
  if (value.is_string()) return sample.add_text(name, std::move(value.get_ref<std::string&>()));
  if (value.is_array()) return add_list(sample, name, value);
}

}  // namespace

void add_json(SampleBuilder& sample, const std::string& name, FieldBytes& bytes) {
  const std::string_view text = bytes.rest();
  const auto replaced = without_python_numbers(text);
  Builder builder;
  const std::string_view parsed = replaced ? std::string_view(*replaced) : text;
  if (!Json::sax_parse(parsed.begin(), parsed.end(), &builder)) {
    if (!replaced) (void)bytes.take(std::min(builder.position(), bytes.left()), "");
    bytes.fail(builder.problem());
  }
  if (name.empty() && !builder.value().is_object()) {
    bytes.fail("expected a JSON object, found " + std::string(builder.value().type_name()));
  }
  (void)bytes.take_rest();
  add_value(sample, name, builder.value());
}

}  // namespace levin::streams
