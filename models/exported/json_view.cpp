#include "levin/models/exported/json_view.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "levin/core/error.h"

namespace levin::exported {

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
  if (!json_->is_string()) expected("a text");
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

}  // namespace levin::exported
