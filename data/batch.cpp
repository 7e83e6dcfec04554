#include "levin/data/batch.h"

#include <algorithm>
#include <type_traits>

#include "levin/core/options/error.h"
#include "levin/core/options/registry.h"
#include "levin/data/batch_fields.h"
#include "levin/data/batch_value.h"

namespace levin {

namespace {

void check_index(size_t index, size_t count) {
  if (index < count) return;
  throw Error("Batch: no tensor " + std::to_string(index) + ": the batch holds " + std::to_string(count) +
              ". Look at what the data set's get() returns, or at the batch that your loop passes.");
}

std::string in_quotes(std::string_view name) {
  return "\"" + cut_text(std::string(name)) + "\"";
}

// What a field is, and how it is read.
std::string kind_text(const BatchStructure::Field& field) {
  const std::string name = in_quotes(field.name);
  if (field.kind == FieldKind::tensor) return "a tensor: use batch[" + name + "]";
  if (field.kind == FieldKind::list) return "a list of tensors: use batch.list(" + name + ")";
  if (field.kind == FieldKind::ragged) return "ragged, a tensor per sample: use batch.list(" + name + ")";
  if (field.kind == FieldKind::texts) return "a list of strings: use batch.texts(" + name + ")";
  return "a value of a type of its own: use batch.value<T>(" + name + ")";
}

[[noreturn]] void is_other_kind(const BatchStructure::Field& field) {
  throw Error("Batch: the field " + in_quotes(field.name) + " is " + kind_text(field) + ".");
}

void add_tensors(BatchStructure& structure, std::vector<at::Tensor>& tensors, const std::string& name, FieldKind kind,
                 const std::vector<at::Tensor>& added) {
  structure.add_tensors(name, kind, tensors.size(), added.size());
  tensors.insert(tensors.end(), added.begin(), added.end());
}

// The fields of `batch` as `name`.…; tensors without a name by their places.
void add_batch(BatchStructure& structure, std::vector<at::Tensor>& tensors, const std::string& name,
               const Batch& batch) {
  std::vector<bool> named(batch.tensors.size(), false);
  const BatchStructure none;
  const BatchStructure& inner = batch.structure() == nullptr ? none : *batch.structure();
  for (const auto& field : inner.fields) {
    structure.add_copy(name + "." + field.name, field, inner, batch.tensors, tensors);
    const bool is_host = field.kind == FieldKind::texts || field.kind == FieldKind::value;
    for (size_t i = 0; !is_host && i < field.count; ++i) named[field.first + i] = true;
  }
  for (size_t i = 0; i < named.size(); ++i) {
    if (named[i]) continue;
    add_tensors(structure, tensors, name + "." + std::to_string(i), FieldKind::tensor, {batch.tensors[i]});
  }
}

void add_field(BatchStructure& structure, std::vector<at::Tensor>& tensors, const BatchField& field) {
  const std::string& name = field.name();
  std::visit(
      [&](const auto& content) {
        using Content = std::decay_t<decltype(content)>;
        if constexpr (std::is_same_v<Content, at::Tensor>) {
          structure.add_tensors(name, FieldKind::tensor, tensors.size(), 1);
          tensors.push_back(content);
        } else if constexpr (std::is_same_v<Content, std::vector<at::Tensor>>) {
          add_tensors(structure, tensors, name, FieldKind::list, content);
        } else if constexpr (std::is_same_v<Content, Ragged>) {
          add_tensors(structure, tensors, name, FieldKind::ragged, content.rows);
        } else if constexpr (std::is_same_v<Content, std::vector<std::string>>) {
          structure.add_texts(name, content);
        } else if constexpr (std::is_same_v<Content, BatchValue>) {
          structure.add_value(name, content);
        } else {
          add_batch(structure, tensors, name, *content);
        }
      },
      field.content());
}

[[noreturn]] void lacks_traits(const std::string& name, const std::string& type, const std::string& what,
                               const std::string& functions) {
  throw Error("Batch: the field \"" + name + "\" holds a value of type " + type + ", which cannot be " + what +
              ": specialize levin::BatchTraits<" + type + "> with " + functions +
              ", or with static constexpr bool whole = true if it belongs to no sample (data/batch_value.h).");
}

}  // namespace

BatchField::BatchField(std::string name, const Batch& batch)
    : name_(std::move(name)), content_(std::make_shared<const Batch>(batch)) {}

Batch::Batch(std::initializer_list<BatchField> fields) {
  BatchStructure structure;
  for (const BatchField& field : fields) add_field(structure, tensors, field);
  structure_ = std::make_shared<const BatchStructure>(std::move(structure));
}

Batch::Batch(std::vector<at::Tensor> list, const BatchNames& names)
    : tensors(std::move(list)), structure_(names.structure()) {
  if (tensors.size() >= names.count()) return;
  throw Error("Batch: " + count_of(static_cast<int64_t>(names.count()), "name") + " (" + join(structure_->names()) +
              ") for " + count_of(static_cast<int64_t>(tensors.size()), "tensor") + ". Give a tensor for each name.");
}

at::Tensor& Batch::operator[](size_t index) {
  check_index(index, tensors.size());
  return tensors[index];
}

const at::Tensor& Batch::operator[](size_t index) const {
  check_index(index, tensors.size());
  return tensors[index];
}

at::Tensor& Batch::operator[](std::string_view name) {
  return tensors[index_of(name)];
}

const at::Tensor& Batch::operator[](std::string_view name) const {
  return tensors[index_of(name)];
}

at::TensorList Batch::list(std::string_view name) const {
  const BatchStructure::Field& found = field(name);
  if (found.kind != FieldKind::list && found.kind != FieldKind::ragged) is_other_kind(found);
  return at::TensorList(tensors).slice(found.first, found.count);
}

const std::vector<std::string>& Batch::texts(std::string_view name) const {
  const BatchStructure::Field& found = field(name);
  if (found.kind != FieldKind::texts) is_other_kind(found);
  return structure_->texts[found.first];
}

Batch Batch::group(std::string_view name) const {
  Batch inner;
  BatchStructure structure;
  const std::string prefix = std::string(name) + ".";
  if (structure_ != nullptr) {
    for (const auto& one : structure_->fields) {
      if (one.name.starts_with(prefix))
        structure.add_copy(one.name.substr(prefix.size()), field(one.name), *structure_, tensors, inner.tensors);
    }
  }
  if (structure.fields.empty()) {
    throw Error("Batch: no group " + in_quotes(name) + ": no field's name begins with " + in_quotes(prefix) +
                ". The batch has " + join(names()) + ".");
  }
  inner.structure_ = std::make_shared<const BatchStructure>(std::move(structure));
  return inner;
}

std::vector<std::string> Batch::names() const {
  return structure_ == nullptr ? std::vector<std::string>() : structure_->names();
}

FieldKind Batch::kind(std::string_view name) const {
  return field(name).kind;
}

void Batch::add(const BatchField& field) {
  BatchStructure structure = structure_ == nullptr ? BatchStructure() : *structure_;
  add_field(structure, tensors, field);
  structure_ = std::make_shared<const BatchStructure>(std::move(structure));
}

const BatchStructure::Field& Batch::field(std::string_view name) const {
  if (structure_ == nullptr) {
    throw Error("Batch: no field " + in_quotes(name) + ": the batch is a list of " +
                count_of(static_cast<int64_t>(tensors.size()), "tensor") +
                " without names. Name them where the batch is made: Batch{{" + in_quotes(name) + ", x}, …}.");
  }
  const BatchStructure::Field* found = structure_->find(name);
  if (found == nullptr) {
    throw Error("Batch: no field " + in_quotes(name) + "." + did_you_mean(std::string(name), names()) +
                " The batch has " + join(names()) + ".");
  }
  const bool in_tensors = found->kind != FieldKind::texts && found->kind != FieldKind::value;
  if (in_tensors && found->first + found->count > tensors.size()) {
    throw Error("Batch: the field " + in_quotes(name) + " has no tensor: the batch holds " +
                count_of(static_cast<int64_t>(tensors.size()), "tensor") +
                ", fewer than its names tell of. Do not remove tensors from a batch with names; make a new one.");
  }
  return *found;
}

size_t Batch::index_of(std::string_view name) const {
  const BatchStructure::Field& found = field(name);
  if (found.kind != FieldKind::tensor) is_other_kind(found);
  return found.first;
}

const BatchValue& Batch::value_of(std::string_view name) const {
  const BatchStructure::Field& found = field(name);
  if (found.kind != FieldKind::value) is_other_kind(found);
  return structure_->values[found.first];
}

void Batch::fail_type(std::string_view name, const BatchValue& value, const std::type_info& wanted) {
  throw Error("Batch: the field " + in_quotes(name) + " holds a value of type " + value.type_name() + ", not " +
              detail::readable_type_name(wanted) + ". Use batch.value<" + value.type_name() + ">(" + in_quotes(name) +
              ").");
}

int64_t Batch::size_of_list() const {
  if (tensors.empty()) return 0;
  return tensors[0].dim() == 0 ? 1 : tensors[0].size(0);
}

int64_t Batch::size_of_fields() const {
  const auto rows_at = [&](size_t place) -> int64_t {
    const bool counts = place < tensors.size() && tensors[place].defined() && tensors[place].dim() > 0;
    return counts ? tensors[place].size(0) : -1;
  };
  for (const auto& one : structure_->fields) {
    int64_t rows = -1;
    if (one.kind == FieldKind::tensor || (one.kind == FieldKind::list && one.count > 0)) rows = rows_at(one.first);
    if (one.kind == FieldKind::ragged || one.kind == FieldKind::texts) rows = static_cast<int64_t>(one.count);
    if (one.kind == FieldKind::value) rows = structure_->values[one.first].rows().value_or(-1);
    if (rows >= 0) return rows;
  }
  return size_of_list();
}

void Batch::check_count(size_t wanted) const {
  if (wanted == tensors.size()) return;
  throw Error("Batch::unpack<" + std::to_string(wanted) + ">: the batch holds " + count_of(tensors.size(), "tensor") +
              ", not " + std::to_string(wanted) +
              ". Unpack as many as the data set's get() returns, or as your loop passes.");
}

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

std::string BatchValue::type_name() const {
  return detail::readable_type_name(type());
}

BatchValue BatchValue::slice(const std::string& name, int64_t from, int64_t count) const {
  if (is_whole()) return *this;
  Any part = rows() ? held_->slice(from, count) : nullptr;
  if (part == nullptr) lacks_traits(name, type_name(), "split by samples", "rows() and slice()");
  return BatchValue(std::move(part));
}

BatchValue BatchValue::concat(const std::string& name, const std::vector<BatchValue>& values) {
  const BatchValue& first = values.at(0);
  if (first.is_whole()) return first;
  Any all = first.held_->concat(values);
  if (all == nullptr) lacks_traits(name, first.type_name(), "collated to a batch", "concat()");
  return BatchValue(std::move(all));
}

}  // namespace levin
