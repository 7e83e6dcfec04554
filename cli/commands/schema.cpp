#include "levin/cli/commands/schema.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "levin/checkpoint/weights.h"
#include "levin/cli/commands/report.h"
#include "levin/cli/config/arguments.h"
#include "levin/cli/config/old_options.h"
#include "levin/cli/config/run_config.h"
#include "levin/cli/sweep/sweep_options.h"
#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/main_guard.h"

namespace levin {

namespace {

using Json = nlohmann::ordered_json;

// "data module" is the definition data_module.
Json reference(std::string name) {
  std::replace(name.begin(), name.end(), ' ', '_');
  return {{"$ref", "#/definitions/" + name}};
}

// Makes schemas from the names of types (ValueType<T>::name()). A type that it does not know, such as a type of the
// user's own, takes any value.
class TypeSchemas {
 public:
  explicit TypeSchemas(const std::vector<ClassKind>& kinds) {
    for (const ClassKind& kind : kinds) {
      kinds_[kind.type] = reference(kind.type);
      kinds_[kind.type + "s"] = reference(kind.type);
    }
    kinds_["class"] = reference("class");
  }

  // "int or list of int or null". A name does not tell where the type of a list's items ends, so both readings of
  // "list of int or null" are allowed.
  [[nodiscard]] Json of(const std::string& type) const {
    Json alternatives = Json::array();
    for (size_t begin = 0; begin < type.size();) {
      const size_t end = std::min(type.find(" or ", begin), type.size());
      for (Json& schema : alternatives_of(type.substr(begin, end - begin), type.substr(begin))) {
        if (schema.empty()) return schema;
        if (std::find(alternatives.begin(), alternatives.end(), schema) == alternatives.end())
          alternatives.push_back(std::move(schema));
      }
      begin = end + std::string_view(" or ").size();
    }
    if (alternatives.size() == 1) return alternatives[0];
    return {{"anyOf", alternatives}};
  }

  [[nodiscard]] Json property(const FieldInfo& field) const { return described(of(field.type), field); }

  // In draft 7 a validator ignores what is next to "$ref".
  [[nodiscard]] static Json described(Json schema, const FieldInfo& field) {
    if (schema.contains("$ref")) schema = {{"allOf", Json::array({schema})}};
    const std::string value = default_text(field);
    schema["description"] = field.doc + (value.empty() ? "" : "; default: " + cut_text(value));
    return schema;
  }

  [[nodiscard]] Json options(const std::vector<FieldInfo>& fields) const {
    Json properties = Json::object();
    for (const FieldInfo& field : fields) properties[field.name] = property(field);
    return {{"type", {"object", "null"}}, {"properties", properties}, {"additionalProperties", false}};
  }

 private:
  // The schemas of `type`; `rest` is the name from there on, for types that consist of others.
  [[nodiscard]] std::vector<Json> alternatives_of(const std::string& type, const std::string& rest) const {
    static const std::map<std::string, Json> simple{
        {"bool", {{"type", "boolean"}}},
        {"int", {{"type", "integer"}}},
        {"float", {{"type", "number"}}},
        {"null", {{"type", "null"}}},
        {"map", {{"type", {"object", "null"}}}},
        {"string", {{"type", {"string", "number", "boolean"}}}},  // the text of any scalar
        {"duration", {{"type", {"string", "number"}}}},
        {"amount of memory", {{"type", {"string", "number"}}}}};
    if (const auto found = simple.find(type); found != simple.end()) return {found->second};
    if (const auto kind = kinds_.find(type); kind != kinds_.end()) return {kind->second};
    if (type.starts_with("period (")) return {{{"type", "string"}}};
    if (type.starts_with("list of ")) return lists_of(rest.substr(std::string_view("list of ").size()));
    if (const size_t to = rest.find(" to "); type.starts_with("map of ") && to != std::string::npos)
      return {{{"type", "object"}, {"additionalProperties", of(rest.substr(to + 4))}}};
    if (type.find('|') != std::string::npos && type.find(' ') == std::string::npos) return {choices(split(type, '|'))};
    return {Json::object()};
  }

  // Components may also be a single one, or null.
  [[nodiscard]] std::vector<Json> lists_of(const std::string& item) const {
    const size_t digits = item.find_first_not_of("0123456789");  // "list of 2 float"
    const std::string type = digits > 0 && digits != std::string::npos ? item.substr(digits + 1) : item;
    const Json items = of(type);
    std::vector<Json> lists{{{"type", "array"}, {"items", items}}};
    if (kinds_.contains(type) && type != "class") lists.push_back(items);
    return lists;
  }

  // `true` without quotes is a bool to an editor, and the text "true" to Levin.
  static Json choices(const std::vector<std::string>& names) {
    Json values = Json::array();
    for (const auto& name : names) {
      values.push_back(name);
      if (name == "true" || name == "false") values.push_back(name == "true");
    }
    return {{"enum", values}};
  }

  std::map<std::string, Json> kinds_ = {};
};

// A class: its name, or {class_path, init_args}, whose options depend on the name. `more`: keys next to them.
Json class_schema(const ClassKind& kind, const Json& more = Json::object()) {
  Json names = Json::array();
  Json options_by_name = Json::array();
  for (const ClassEntry& entry : kind.classes) {
    names.push_back(entry.name);
    options_by_name.push_back(
        {{"if", {{"properties", {{"class_path", {{"const", entry.name}}}}}, {"required", {"class_path"}}}},
         {"then", {{"properties", {{"init_args", reference(kind.type + "." + entry.name)}}}}}});
  }
  for (const auto& alias : kind.aliases) names.push_back(alias);
  // Only what follows the last dot matters: lightning.pytorch.callbacks.EarlyStopping.
  const Json name = {{"anyOf", {{{"enum", names}}, {{"pattern", "\\."}}}}};
  Json properties = {{"class_path", name}, {"init_args", {{"type", {"object", "null"}}}}};
  properties.update(more);
  Json map = {{"properties", properties}, {"additionalProperties", false}};
  if (!options_by_name.empty()) map["allOf"] = options_by_name;
  return {{"type", {"object", "string", "number", "null"}},  // precision: 32
          {"if", {{"type", "object"}}},
          {"then", map},
          {"else", {{"if", {{"type", "string"}}}, {"then", name}}}};
}

template <class Spec>
Json keys_next_to_class(const TypeSchemas& types) {
  Json keys = Json::object();
  for (const FieldInfo& field : describe_options<Spec>()) {
    if (field.name != "class_path" && field.name != "init_args") keys[field.name] = types.property(field);
  }
  return keys;
}

Json trainer_schema(const TypeSchemas& types, const std::vector<FieldInfo>& trainer) {
  Json schema = types.options(trainer);
  for (const auto& name : old_option_names()) {
    schema["properties"][name] = {{"deprecated", true}, {"description", "an older spelling, which Levin translates"}};
  }
  return schema;
}

// Each key of a run file with the type that RunConfig keeps as a tree.
Json run_file_schema(const std::vector<ClassKind>& kinds, const TypeSchemas& types) {
  const std::map<std::string, Json> known{
      {"trainer", reference("trainer")},
      {"model", reference(kind_at(kinds, "model")->type)},
      {"data", reference(kind_at(kinds, "data")->type)},
      {"optimizer", class_schema(*kind_at(kinds, "optimizer"), keys_next_to_class<OptimizerSpec>(types))},
      {"lr_scheduler", class_schema(*kind_at(kinds, "lr_scheduler"), keys_next_to_class<LrSchedulerSpec>(types))},
      {"weights", types.options(describe_options<WeightsOptions>())},
      {"plugins", types.of("string or list of string")}};
  const std::vector<FieldInfo> fields = describe_options<RunConfig>();
  Json schema = types.options(fields);
  for (const FieldInfo& field : fields) {
    if (const auto found = known.find(field.name); found != known.end())
      schema["properties"][field.name] = TypeSchemas::described(found->second, {field.name, "", "", field.doc});
  }
  return schema;
}

Json sweep_schema(const TypeSchemas& types) {
  Json schema = types.options(describe_options<SweepOptions>());
  schema["properties"]["search"] = types.options(describe_options<SearchOptions>());
  schema["properties"]["space"]["type"] = "object";
  return schema;
}

std::string schema_usage(int width) {
  return "levin schema [--output FILE] [--plugins FILE…]\n\n" +
         wrapped(
             "Writes a JSON schema of run files and sweep files, with the classes of this program. Editors that know "
             "yaml-language-server check a file and complete its keys if its first line is "
             "\"# yaml-language-server: $schema=FILE\", where FILE is relative to the file.",
             width) +
         "\n" + own_options_table(describe_options<SchemaOptions>(), width);
}

}  // namespace

std::string schema_text(std::vector<ClassKind> kinds, const std::vector<FieldInfo>& trainer) {
  for (ClassKind& kind : kinds) {
    for (const FieldInfo& field : trainer) {  // strategy: auto is not a class
      if (field.type == kind.type && !default_text(field).empty()) kind.aliases.push_back(default_text(field));
    }
  }
  const TypeSchemas types(kinds);
  Json definitions = {{"run", run_file_schema(kinds, types)},
                      {"sweep", sweep_schema(types)},
                      {"trainer", trainer_schema(types, trainer)},
                      {"class", {{"type", {"object", "string", "null"}}}}};
  for (const ClassKind& kind : kinds) {
    const auto name = [](const std::string& spaced) {
      return reference(spaced)["$ref"].get<std::string>().substr(std::string_view("#/definitions/").size());
    };
    definitions[name(kind.type)] = class_schema(kind);
    for (const ClassEntry& entry : kind.classes) {
      Json options = types.options(entry.describe != nullptr ? entry.describe() : std::vector<FieldInfo>{});
      options["description"] = entry.name + ": " + entry.doc;
      definitions[name(kind.type + "." + entry.name)] = std::move(options);
    }
  }
  const Json schema = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                       {"title", "Run files and sweep files of Levin"},
                       {"description", "Written by levin schema"},
                       {"if", {{"type", "object"}, {"required", {"space"}}}},
                       {"then", reference("sweep")},
                       {"else", reference("run")},
                       {"definitions", definitions}};
  return schema.dump(1);
}

int run_schema(const std::vector<std::string>& arguments, int width, const KnownNames& known) {
  Problems problems;
  SchemaOptions options;
  const SplitArguments read = read_own_options(arguments, options, problems);
  if (read.help) return print_usage(schema_usage(width));
  refuse_rest(read.rest, own_options(SchemaOptions::fields()), 0, "unexpected argument.", problems);
  if (problems.empty()) known.open_plugins(options.plugins, problems);
  if (!problems.empty()) return report_problems(problems, "nothing was written. See levin schema --help.");
  const std::string text = schema_text(known.kinds(), known.trainer());
  if (options.output.empty()) {
    Console::instance().print(text);
  } else {
    write_output(options.output, text + "\n");
  }
  return kExitOk;
}

}  // namespace levin
