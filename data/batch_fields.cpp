#include "levin/data/batch_fields.h"

#include <algorithm>

#include "levin/core/error.h"

namespace levin {

const BatchStructure::Field* BatchStructure::find(std::string_view name) const {
  for (const Field& field : fields) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

std::vector<std::string> BatchStructure::names() const {
  std::vector<std::string> all;
  all.reserve(fields.size());
  for (const Field& field : fields) all.push_back(field.name);
  return all;
}

bool BatchStructure::has_tensors_only() const {
  return std::all_of(fields.begin(), fields.end(), [](const Field& field) {
    return field.kind == FieldKind::tensor || field.kind == FieldKind::list;
  });
}

const BatchStructure::Field* BatchStructure::on_host() const {
  const auto found = std::find_if(fields.begin(), fields.end(), [](const Field& field) {
    return field.kind == FieldKind::texts || field.kind == FieldKind::value;
  });
  return found == fields.end() ? nullptr : &*found;
}

void BatchStructure::add(Field field) {
  if (field.name.empty()) throw Error("Batch: a field's name is empty. Give every field a name.");
  if (find(field.name) != nullptr) {
    throw Error("Batch: there are two fields \"" + cut_text(field.name) + "\". Give every field a name of its own.");
  }
  fields.push_back(std::move(field));
}

void BatchStructure::add_tensors(const std::string& name, FieldKind kind, size_t first, size_t count) {
  add({name, kind, first, count});
}

void BatchStructure::add_texts(const std::string& name, std::vector<std::string> list) {
  add({name, FieldKind::texts, texts.size(), list.size()});
  texts.push_back(std::move(list));
}

void BatchStructure::add_value(const std::string& name, BatchValue value) {
  add({name, FieldKind::value, values.size(), 1});
  values.push_back(std::move(value));
}

void BatchStructure::add_copy(const std::string& name, const Field& field, const BatchStructure& from,
                              at::TensorList from_tensors, std::vector<at::Tensor>& tensors) {
  if (field.kind == FieldKind::texts) return add_texts(name, from.texts[field.first]);
  if (field.kind == FieldKind::value) return add_value(name, from.values[field.first]);
  add_tensors(name, field.kind, tensors.size(), field.count);
  const at::TensorList own = from_tensors.slice(field.first, field.count);
  tensors.insert(tensors.end(), own.begin(), own.end());
}

BatchNames::BatchNames(const std::vector<std::string>& names) {
  BatchStructure structure;
  for (size_t i = 0; i < names.size(); ++i) structure.add_tensors(names[i], FieldKind::tensor, i, 1);
  structure_ = std::make_shared<const BatchStructure>(std::move(structure));
}

}  // namespace levin
