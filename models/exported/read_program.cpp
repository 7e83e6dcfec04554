#include "levin/models/exported/read_program.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/models/exported/json_view.h"

namespace levin::exported {

namespace {

constexpr int64_t kSchemaMajor = 8;

constexpr size_t kMaxDepth = 200;  // modules within modules

// Entries "key,qualified name,class", outermost first, which is the model itself, whose name is empty; a second call of
// a module has "@1" after its key. Operators that the export has inserted have a stack of one made-up module, which is
// ignored.
std::vector<ModuleCall> modules_of(const std::string& stack) {
  std::vector<ModuleCall> calls;
  for (size_t at = 0; at < stack.size() && calls.size() < kMaxDepth;) {
    const std::string entry = stack.substr(at, stack.find(';', at) - at);
    at += entry.size() + 1;
    const size_t first = entry.find(','), last = entry.rfind(',');
    if (first == std::string::npos || first == last) continue;
    const std::string name = entry.substr(first + 1, last - first - 1);
    calls.push_back({name.substr(0, name.find('@')), entry.substr(0, first)});
  }
  if (!calls.empty() && !calls[0].name.empty()) calls.clear();
  return calls;
}

// Returns a string; a value of any other type is ignored.
std::optional<std::string> text_of(const JsonView& metadata, const char* key) {
  const auto found = metadata.find(key);
  return found && found->is_text() ? std::optional(found->text()) : std::nullopt;
}

// Of lines such as `File "/home/me/model.py", line 12, in forward`: "model.py:12".
std::string source_of(const std::string& trace) {
  std::string source;
  for (size_t at = trace.find("File \""); at != std::string::npos; at = trace.find("File \"", at + 1)) {
    const size_t end = trace.find('"', at + 6);
    const size_t line = trace.find(", line ", at);
    if (end == std::string::npos || line != end + 1) continue;
    const std::string path = trace.substr(at + 6, end - at - 6);
    if (path.find("/torch/") != std::string::npos || path.starts_with("torch/")) continue;
    const size_t digits = line + 7;
    const size_t stop = std::min(trace.find_first_not_of("0123456789", digits), trace.size());
    source = cut_text(path.substr(path.rfind('/') + 1) + ":" + trace.substr(digits, stop - digits));
  }
  return source;
}

Node read_node(const JsonView& json, Names& names) {
  Node node{.name = "", .target = json["target"].text(), .inputs = {}, .outputs = {}};
  for (const JsonView& input : json["inputs"].items()) {
    node.inputs.push_back({input["name"].text(), read_argument(input["arg"], names)});
  }
  for (const JsonView& output : json["outputs"].items()) node.outputs.push_back(read_definition(output, names));
  if (const auto name = json.find("name")) node.name = name->text();
  if (const auto metadata = json.find("metadata")) {
    if (const auto stack = text_of(*metadata, "nn_module_stack")) node.modules = modules_of(*stack);
    if (const auto trace = text_of(*metadata, "stack_trace")) node.source = source_of(*trace);
  }
  return node;
}

// "Symbol('s77', positive=True, integer=True)": s77. Other expressions follow from sizes elsewhere.
std::string symbol_of(const std::string& expression) {
  constexpr std::string_view begin = "Symbol('";
  if (!expression.starts_with(begin)) return "";
  return expression.substr(begin.size(), expression.find('\'', begin.size()) - begin.size());
}

InputShape read_shape(const JsonView& meta) {
  InputShape shape{.dtype = read_dtype(meta["dtype"])};
  for (const JsonView& size : meta["sizes"].items()) {
    const auto fixed = size.find("as_int");
    if (fixed && fixed->integer() < 0) fixed->refuse("is a negative size");
    shape.sizes.push_back(fixed ? fixed->integer() : -1);
    shape.symbols.push_back(fixed ? "" : symbol_of(size["as_expr"]["expr_str"].text()));
  }
  return shape;
}

// A name that LibTorch's modules take: parts between dots, none of them empty.
std::string qualified_name(const JsonView& json) {
  const std::string name = json.text();
  const bool is_name = !name.empty() && name.front() != '.' && name.back() != '.' &&
                       name.find("..") == std::string::npos &&
                       std::all_of(name.begin(), name.end(), [](unsigned char c) { return c > ' ' && c != 127; }) &&
                       std::count(name.begin(), name.end(), '.') < static_cast<std::ptrdiff_t>(kMaxDepth);
  if (!is_name) json.refuse("is \"" + cut_text(name) + "\", which cannot name a tensor of a module");
  return name;
}

InputSpec read_input_spec(const JsonView& json, const Graph& graph, const Argument& input, const JsonView& shapes) {
  using Kind = InputSpec::Kind;
  const auto [kind, value] = json.only_member();
  if (kind == "parameter") return {Kind::parameter, qualified_name(value["parameter_name"])};
  if (kind == "buffer") return {Kind::buffer, qualified_name(value["buffer_name"]), value["persistent"].boolean()};
  if (kind == "tensor_constant") return {Kind::constant, qualified_name(value["tensor_constant_name"]), false};
  if (kind == "constant_input") return {Kind::fixed, value["name"].text()};
  if (kind != "user_input") {
    json.refuse("is \"" + cut_text(kind) +
                "\", which a program without Python cannot have: export a model whose inputs and "
                "state are tensors and numbers");
  }
  if (input.kind != Argument::Kind::value) return {Kind::fixed, ""};
  const std::string& name = graph.values[input.value];
  InputSpec spec{Kind::user, name};
  if (graph.types[input.value] == ValueType::tensor) spec.shape = read_shape(shapes[name.c_str()]);
  return spec;
}

OutputSpec read_output_spec(const JsonView& json) {
  using Kind = OutputSpec::Kind;
  const auto [kind, value] = json.only_member();
  if (kind == "user_output" || kind == "loss_output") return {Kind::user, ""};
  if (kind == "buffer_mutation") return {Kind::buffer, value["buffer_name"].text()};
  if (kind == "parameter_mutation") return {Kind::parameter, value["parameter_name"].text()};
  if (kind == "user_input_mutation") return {Kind::input, value["user_input_name"].text()};
  json.refuse("is \"" + cut_text(kind) + "\": export the model itself, not a joint graph with its gradients");
}

// What an output spec names must be an input; a user's output must not be a buffer's.
void check_outputs(const Program& program, const JsonView& specs) {
  const auto wanted = [](OutputSpec::Kind kind) {
    if (kind == OutputSpec::Kind::buffer) return InputSpec::Kind::buffer;
    return kind == OutputSpec::Kind::parameter ? InputSpec::Kind::parameter : InputSpec::Kind::user;
  };
  for (size_t k = 0; k < program.outputs.size(); ++k) {
    const OutputSpec& output = program.outputs[k];
    if (output.kind == OutputSpec::Kind::user) continue;
    const bool is_there = std::any_of(program.inputs.begin(), program.inputs.end(), [&](const InputSpec& input) {
      return input.kind == wanted(output.kind) && input.name == output.name;
    });
    const Argument& value = program.graph.outputs[k];
    const bool is_tensor = value.kind == Argument::Kind::value && program.graph.types[value.value] == ValueType::tensor;
    if (!is_there || !is_tensor)
      specs.items()[k].refuse("changes \"" + cut_text(output.name) + "\", which is not an input");
  }
}

void check_version(const JsonView& json) {
  const JsonView version = json["schema_version"];
  const int64_t major = version["major"].integer();
  if (major == kSchemaMajor) return;
  version.refuse("is " + std::to_string(major) + "." + std::to_string(version["minor"].integer()) +
                 "; Levin reads version 8, which torch.export.save of PyTorch 2.9 to 2.11 writes");
}

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

Graph read_graph(const JsonView& json) {
  Graph graph;
  Names names(graph);
  for (const JsonView& input : json["inputs"].items()) graph.inputs.push_back(read_definition(input, names));
  for (const Argument& input : graph.inputs) {
    if (input.kind == Argument::Kind::list) json["inputs"].refuse("has a list of tensors as one input");
  }
  for (const JsonView& node : json["nodes"].items()) graph.nodes.push_back(read_node(node, names));
  for (const JsonView& output : json["outputs"].items()) graph.outputs.push_back(read_argument(output, names));
  return graph;
}

Program read_program(const JsonView& json) {
  check_version(json);
  const JsonView module = json["graph_module"];
  Program program{.graph = read_graph(module["graph"]), .inputs = {}, .outputs = {}, .ranges = {}, .torch_version = ""};
  if (const auto version = json.find("torch_version")) program.torch_version = cut_text(version->text());
  const JsonView inputs = module["signature"]["input_specs"], outputs = module["signature"]["output_specs"];
  const auto input_specs = inputs.items(), output_specs = outputs.items();
  if (input_specs.size() != program.graph.inputs.size())
    inputs.refuse("has a different number of inputs than the graph");
  if (output_specs.size() != program.graph.outputs.size())
    outputs.refuse("has a different number of outputs than the graph");
  for (size_t k = 0; k < input_specs.size(); ++k) {
    program.inputs.push_back(
        read_input_spec(input_specs[k], program.graph, program.graph.inputs[k], module["graph"]["tensor_values"]));
    const auto kind = program.inputs.back().kind;
    const Argument& input = program.graph.inputs[k];
    if (kind == InputSpec::Kind::fixed || kind == InputSpec::Kind::user) continue;
    if (input.kind != Argument::Kind::value || program.graph.types[input.value] != ValueType::tensor) {
      input_specs[k].refuse("names a tensor for an input that is none");
    }
  }
  for (const JsonView& spec : output_specs) program.outputs.push_back(read_output_spec(spec));
  check_outputs(program, outputs);
  for (const auto& [symbol, range] : json["range_constraints"].members()) {
    const auto least = range.find("min_val"), most = range.find("max_val");
    program.ranges.push_back({symbol, least ? least->integer() : INT64_MIN, most ? most->integer() : INT64_MAX});
  }
  return program;
}

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
