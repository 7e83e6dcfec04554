#include "levin/data/streams/sample_builder.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace levin::streams {

namespace {

constexpr size_t kMaxFields = 1000;

bool is_field_of(std::string_view field, std::string_view group) {
  return field.size() > group.size() && field[group.size()] == '.' && field.starts_with(group);
}

}  // namespace

bool FieldChoice::wants_whole(std::string_view field) const {
  return names_.empty() || std::any_of(names_.begin(), names_.end(), [&](const std::string& name) {
           return name == field || is_field_of(field, name);
         });
}

bool FieldChoice::wants(std::string_view field) const {
  return wants_whole(field) ||
         std::any_of(names_.begin(), names_.end(), [&](const std::string& name) { return is_field_of(name, field); });
}

void FieldChoice::check(const std::string& where, const std::vector<std::string>& fields, bool columns) const {
  const auto name = std::find_if(names_.begin(), names_.end(), [&](const std::string& wanted) {
    return std::none_of(fields.begin(), fields.end(), [&](const std::string& field) {
      return field == wanted || is_field_of(field, wanted) || (columns && is_field_of(wanted, field));
    });
  });
  if (name == names_.end()) return;
  throw DataError(where + ": no field \"" + cut_text(*name) + "\"." + did_you_mean(*name, fields) + " There is " +
                  cut_text(join(fields, 20), 400) + ". Change the option `fields`.");
}

void SampleBuilder::check_new(const std::string& name) const {
  const auto fail = [&](const std::string& what) {
    throw DataError(file_.path() + ": sample " + std::to_string(sample_) + ": " + what);
  };
  if (name.empty()) fail("a field has an empty name. Give every field a name.");
  if (structure_.find(name) != nullptr) fail("two fields are called \"" + cut_text(name) + "\". Rename one of them.");
  if (structure_.fields.size() >= kMaxFields) {
    fail("more than " + std::to_string(kMaxFields) +
         " fields. Choose some with the option `fields`, or store lists of " + "numbers instead of objects.");
  }
}

void SampleBuilder::add(const std::string& name, at::Tensor tensor) {
  check_new(name);
  structure_.add_tensors(name, FieldKind::tensor, tensors_.size(), 1);
  tensors_.push_back(std::move(tensor));
}

void SampleBuilder::add(const std::string& name, std::vector<at::Tensor> list) {
  check_new(name);
  structure_.add_tensors(name, FieldKind::list, tensors_.size(), list.size());
  std::move(list.begin(), list.end(), std::back_inserter(tensors_));
}

void SampleBuilder::add_text(const std::string& name, std::string text) {
  check_new(name);
  std::vector<std::string> one;
  one.push_back(std::move(text));
  structure_.add_texts(name, std::move(one));
}

Batch SampleBuilder::finish() {
  if (!choice_.names().empty()) {
    choice_.check(file_.path() + ": sample " + std::to_string(sample_), structure_.names());
  }
  Batch batch(std::move(tensors_));
  batch.set_structure(std::make_shared<const BatchStructure>(std::move(structure_)));
  return batch;
}

}  // namespace levin::streams
