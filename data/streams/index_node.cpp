#include "levin/data/streams/index_node.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"

namespace levin::streams {

namespace {

const nlohmann::json kNull = nullptr;

std::string found_text(const nlohmann::json& value) {
  if (value.is_null()) return "nothing";
  if (value.is_structured()) {
    return (value.is_array() ? "a list of " : "an object of ") + std::to_string(value.size());
  }
  return cut_text(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

bool IndexNode::is_null() const {
  return value_->is_null();
}
bool IndexNode::is_object() const {
  return value_->is_object();
}
bool IndexNode::has(const std::string& key) const {
  return value_->is_object() && value_->contains(key);
}

IndexNode IndexNode::operator[](const std::string& key) const {
  const std::string path = path_.empty() ? key : path_ + "." + key;
  if (!value_->is_object()) return {&kNull, name_, path};
  const auto found = value_->find(key);
  return {found == value_->end() ? &kNull : &*found, name_, path};
}

std::vector<IndexNode> IndexNode::elements() const {
  if (!value_->is_array()) fail_expected("a list");
  std::vector<IndexNode> nodes;
  nodes.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i) {
    nodes.push_back(IndexNode(&(*value_)[i], name_, path_ + "[" + std::to_string(i) + "]"));
  }
  return nodes;
}

std::vector<std::string> IndexNode::keys() const {
  if (!value_->is_object()) fail_expected("an object");
  std::vector<std::string> all;
  for (const auto& [key, inner] : value_->items()) all.push_back(key);
  return all;
}

std::string IndexNode::text() const {
  if (!value_->is_string()) fail_expected("a string");
  return value_->get<std::string>();
}

int64_t IndexNode::count(int64_t most) const {
  const bool is_count = value_->is_number_unsigned() && value_->get<uint64_t>() <= static_cast<uint64_t>(most);
  if (!is_count) fail_expected("an integer from 0 to " + std::to_string(most));
  return value_->get<int64_t>();
}

std::string IndexNode::key() const {
  const std::string name = text();
  if (!is_path_below(name) || !has_no_nul(name)) fail_expected("a file below the data set's folder");
  return name;
}

void IndexNode::fail(const std::string& what) const {
  throw DataError(*name_ + ": " + (path_.empty() ? "" : cut_text(path_) + ": ") + what);
}

void IndexNode::fail_expected(const std::string& expected) const {
  fail("expected " + expected + ", found " + found_text(*value_) + ". Write the data set's index again.");
}

nlohmann::json parse_index(const std::string& name, std::string_view text) {
  try {
    return nlohmann::json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::exception& error) {
    const std::string what = error.what();
    const size_t colon = what.find("] ");
    throw DataError(name +
                    ": expected JSON: " + cut_text(colon == std::string::npos ? what : what.substr(colon + 2), 300) +
                    ". Write the data set's index again.");
  }
}

}  // namespace levin::streams
