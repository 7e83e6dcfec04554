#include "levin/models/exported/read_argument.h"

#include <utility>

#include "levin/core/error.h"
#include "levin/models/exported/schema_types.h"

namespace levin::exported {

namespace {

Argument constant_of(c10::IValue value) {
  Argument argument;
  argument.constant = std::move(value);
  return argument;
}

Argument value_of(size_t index) {
  Argument argument;
  argument.kind = Argument::Kind::value;
  argument.value = index;
  return argument;
}

template <class T, class Read>
c10::IValue list_of(const JsonView& json, Read read) {
  c10::List<T> list;
  for (const JsonView& item : json.items()) list.push_back(read(item));
  return list;
}

// {"as_name": "s0"}, or {"as_int": 3} and its siblings.
Argument read_symbolic(const JsonView& json, const Names& names) {
  const auto [kind, value] = json.only_member();
  if (kind == "as_name") return value_of(names.use(value, value.text(), ValueType::number));
  if (kind == "as_int") return constant_of(value.integer());
  if (kind == "as_float") return constant_of(value.real());
  if (kind == "as_bool") return constant_of(value.boolean());
  json.refuse("is neither a name nor a number");
}

Argument read_tensor(const JsonView& json, const Names& names) {
  return value_of(names.use(json, json["name"].text(), ValueType::tensor));
}

Argument read_optional_tensor(const JsonView& json, const Names& names) {
  const auto [kind, value] = json.only_member();
  if (kind == "as_none") return {};
  if (kind == "as_tensor") return read_tensor(value, names);
  json.refuse("is neither a tensor nor None");
}

template <class Read>
Argument read_list(const JsonView& json, const Names& names, bool is_tensors, Read read) {
  Argument argument;
  argument.kind = Argument::Kind::list;
  argument.is_tensors = is_tensors;
  for (const JsonView& item : json.items()) argument.items.push_back(read(item, names));
  return argument;
}

// What holds no names.
std::optional<c10::IValue> read_constant(const std::string& kind, const JsonView& json) {
  if (kind == "as_none") return c10::IValue();
  if (kind == "as_int") return json.integer();
  if (kind == "as_float") return json.real();
  if (kind == "as_bool") return json.boolean();
  if (kind == "as_string") return json.text();
  if (kind == "as_scalar_type") return static_cast<int64_t>(read_dtype(json));
  if (kind == "as_layout") return static_cast<int64_t>(read_layout(json));
  if (kind == "as_memory_format") return static_cast<int64_t>(read_memory_format(json));
  if (kind == "as_device") return read_device(json);
  if (kind == "as_complex") return c10::IValue(c10::complex<double>(json["real"].real(), json["imag"].real()));
  if (kind == "as_ints") return list_of<int64_t>(json, [](const JsonView& item) { return item.integer(); });
  if (kind == "as_floats") return list_of<double>(json, [](const JsonView& item) { return item.real(); });
  if (kind == "as_bools") return list_of<bool>(json, [](const JsonView& item) { return item.boolean(); });
  if (kind == "as_strings") return list_of<std::string>(json, [](const JsonView& item) { return item.text(); });
  return std::nullopt;
}

}  // namespace

size_t Names::define(const JsonView& where, const std::string& name, ValueType type) {
  const size_t index = graph_->values.size();
  if (!index_.emplace(name, index).second) where.refuse("defines \"" + cut_text(name) + "\" a second time");
  graph_->values.push_back(name);
  graph_->types.push_back(type);
  return index;
}

size_t Names::use(const JsonView& where, const std::string& name, ValueType type) const {
  const auto found = index_.find(name);
  if (found == index_.end()) where.refuse("uses \"" + cut_text(name) + "\", which nothing before it defines");
  const bool is_right = graph_->types[found->second] == type;
  if (!is_right)
    where.refuse("uses \"" + cut_text(name) + "\" as a " + (type == ValueType::tensor ? "tensor" : "number"));
  return found->second;
}

Argument read_argument(const JsonView& json, const Names& names) {
  const auto [kind, value] = json.only_member();
  if (auto constant = read_constant(kind, value)) return constant_of(std::move(*constant));
  if (kind == "as_tensor") return read_tensor(value, names);
  if (kind == "as_optional_tensor") return read_optional_tensor(value, names);
  if (kind == "as_tensors") return read_list(value, names, true, read_tensor);
  if (kind == "as_optional_tensors") return read_list(value, names, true, read_optional_tensor);
  if (kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool") return read_symbolic(value, names);
  if (kind == "as_sym_ints" || kind == "as_sym_floats" || kind == "as_sym_bools") {
    return read_list(value, names, false, read_symbolic);
  }
  if (kind == "as_graph") {
    Argument argument;
    argument.kind = Argument::Kind::graph;
    argument.graph = std::make_shared<Graph>(read_graph(value["graph"]));
    return argument;
  }
  json.refuse("is \"" + cut_text(kind) + "\", which Levin does not know");
}

Argument read_definition(const JsonView& json, Names& names) {
  const auto [kind, value] = json.only_member();
  const auto tensor = [&](const JsonView& item) {
    return value_of(names.define(item, item["name"].text(), ValueType::tensor));
  };
  if (kind == "as_tensor") return tensor(value);
  if (kind == "as_tensors") {
    Argument argument;
    argument.kind = Argument::Kind::list;
    argument.is_tensors = true;
    for (const JsonView& item : value.items()) argument.items.push_back(tensor(item));
    return argument;
  }
  if (kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool") {
    const JsonView name = value["as_name"];
    return value_of(names.define(name, name.text(), ValueType::number));
  }
  if (kind == "as_optional_tensor") {
    const auto [inner, item] = value.only_member();
    return inner == "as_tensor" ? tensor(item) : Argument();
  }
  if (auto constant = read_constant(kind, value)) return constant_of(std::move(*constant));
  json.refuse("is \"" + cut_text(kind) + "\", which Levin does not know");
}

}  // namespace levin::exported
