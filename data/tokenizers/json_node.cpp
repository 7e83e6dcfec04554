#include "levin/data/tokenizers/json_node.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/data/tokenizers/unicode.h"

namespace levin::tokenizers {

namespace {

const nlohmann::json kNull = nullptr;
constexpr size_t kMaxProblems = 20;
constexpr size_t kMaxProblemBytes = 400;  // bytes; names and keys come from the file

// A value for a message. A large one is not written out in whole.
std::string seen(const nlohmann::json& value) {
  if (value.is_null()) return "nothing";
  if (value.is_structured())
    return (value.is_array() ? "an array of " : "an object of ") + std::to_string(value.size());
  return cut_text(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

JsonNode::JsonNode(const nlohmann::json& value, Problems& problems) : JsonNode(&value, "", &problems) {}
JsonNode::JsonNode(const nlohmann::json* value, std::string path, Problems* problems)
    : value_(value), path_(std::move(path)), problems_(problems) {}

bool JsonNode::is_null() const {
  return value_->is_null();
}
bool JsonNode::is_object() const {
  return value_->is_object();
}

// A key may be a name from the file, of any length, and be part of the path of each of many elements.
JsonNode JsonNode::at(const std::string& key) const {
  const std::string path = (path_.empty() ? "" : path_ + ".") + cut_text(key);
  if (!value_->is_object()) return {&kNull, path, problems_};
  const auto found = value_->find(key);
  return {found == value_->end() ? &kNull : &*found, path, problems_};
}

std::vector<JsonNode> JsonNode::elements() const {
  std::vector<JsonNode> nodes;
  if (!value_->is_array()) {
    refuse_value("an array");
    return nodes;
  }
  nodes.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i) {
    nodes.push_back(JsonNode(&(*value_)[i], path_ + "[" + std::to_string(i) + "]", problems_));
  }
  return nodes;
}

std::string JsonNode::text(const std::string& key, const std::optional<std::string>& absent) const {
  const JsonNode node = at(key);
  return node.is_null() && absent ? *absent : node.text();
}

std::string JsonNode::text() const {
  if (value_->is_string()) return value_->get<std::string>();
  refuse_value("a string");
  return "";
}

bool JsonNode::flag(const std::string& key, std::optional<bool> absent) const {
  const JsonNode node = at(key);
  if (node.is_null() && absent) return *absent;
  if (node.value().is_boolean()) return node.value().get<bool>();
  node.refuse_value("true or false");
  return false;
}

int64_t JsonNode::count(const std::string& key, int64_t most, std::optional<int64_t> absent) const {
  const JsonNode node = at(key);
  return node.is_null() && absent ? *absent : node.count(most);
}

int64_t JsonNode::count(int64_t most) const {
  if (value_->is_number_unsigned() && value_->get<uint64_t>() <= static_cast<uint64_t>(most)) {
    return value_->get<int64_t>();
  }
  refuse_value("a number from 0 to " + std::to_string(most));
  return 0;
}

char32_t JsonNode::character(const std::string& key) const {
  const JsonNode node = at(key);
  const std::string text = node.value().is_string() ? node.value().get<std::string>() : "";
  if (count_characters(text) == 1) return character_at(text, 0).code;
  node.refuse_value("one character");
  return ' ';
}

void JsonNode::refuse(const std::string& sentence) const {
  if (problems_->size() == kMaxProblems) return;
  problems_->push_back(cut_text((path_.empty() ? "" : path_ + ": ") + sentence, kMaxProblemBytes));
}

void JsonNode::refuse_value(const std::string& expected) const {
  refuse("expected " + expected + ", saw " + seen(*value_) + ".");
}

}  // namespace levin::tokenizers
