#include "levin/data/loading/sample_stacker.h"

#include <ATen/ops/stack.h>

#include <cstring>
#include <sstream>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/data/batch_memory.h"
#include "levin/data/batch_rows.h"

namespace levin {

namespace {

constexpr const char* kMakeAlike = " Make get() return samples that are alike, or give the loader a collate function.";

std::string described(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  std::ostringstream text;
  text << tensor.sizes() << " " << tensor.scalar_type();
  return text.str();
}

bool alike(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() && a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type();
}

// Whether the numbers are contiguous in memory.
bool is_plain(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && !tensor.is_quantized() && tensor.is_contiguous() &&
         !tensor.is_neg() && !tensor.is_conj() && !tensor.requires_grad();
}

// What a field of a sample is, for messages; none: a list of tensors without names.
std::string field_text(const BatchStructure::Field* field) {
  if (field == nullptr) return "no such field";
  if (field->kind == FieldKind::texts) return count_of(static_cast<int64_t>(field->count), "text");
  if (field->kind == FieldKind::value) return "a value of a type of its own";
  const std::string ragged = field->kind == FieldKind::ragged ? "ragged " : "";
  if (field->kind == FieldKind::tensor) return "a tensor";
  return count_of(static_cast<int64_t>(field->count), ragged + "tensor");
}

}  // namespace

void SampleStacker::Column::start(const at::Tensor& first, size_t count) {
  if (is_ragged || !is_plain(first)) return;
  std::vector<int64_t> sizes = {static_cast<int64_t>(count)};
  sizes.insert(sizes.end(), first.sizes().begin(), first.sizes().end());
  stacked = empty_batch(sizes, first.options());
}

void SampleStacker::Column::add(const at::Tensor& sample, size_t place, size_t count) {
  if (stacked.defined() && is_plain(sample)) {
    const size_t bytes = sample.nbytes();
    auto* start = static_cast<char*>(stacked.mutable_data_ptr());
    if (bytes > 0) std::memcpy(start + place * bytes, sample.const_data_ptr(), bytes);
    return;
  }
  if (stacked.defined()) give_up(place, count);
  samples.push_back(sample);
}

// A later sample is not plain: the stacked rows become samples again.
void SampleStacker::Column::give_up(size_t place, size_t count) {
  samples.reserve(count);
  for (size_t i = 0; i < place; ++i) samples.push_back(stacked.select(0, static_cast<int64_t>(i)));
  stacked.reset();
}

void SampleStacker::Column::finish(size_t added, std::vector<at::Tensor>& tensors) {
  if (is_ragged) {
    tensors.insert(tensors.end(), samples.begin(), samples.end());
  } else {
    const auto rows = static_cast<int64_t>(added);  // fewer than expected if samples were left out
    tensors.push_back(!stacked.defined()        ? at::stack(samples)
                      : stacked.size(0) == rows ? std::move(stacked)
                                                : stacked.narrow(0, 0, rows));
  }
}

std::string SampleStacker::name_of(size_t place) const {
  return "sample " + std::to_string(indices_ == nullptr ? static_cast<int64_t>(place) : indices_[place]);
}

// "tensor 1", or the field of which it is a part.
std::string SampleStacker::tensor_text(size_t place) const {
  if (first_.structure() != nullptr) {
    for (const auto& field : first_.structure()->fields) {
      if (field.kind == FieldKind::tensor && field.first == place) return "field \"" + field.name + "\"";
      const bool inside = field.kind == FieldKind::list && place >= field.first && place < field.first + field.count;
      if (inside) return "tensor " + std::to_string(place - field.first) + " of field \"" + field.name + "\"";
    }
  }
  return "tensor " + std::to_string(place);
}

void SampleStacker::check_fields(const Batch& sample) const {
  const BatchStructure none;
  const BatchStructure& own = sample.structure() == nullptr ? none : *sample.structure();
  const BatchStructure& wanted = first_.structure() == nullptr ? none : *first_.structure();
  const auto differs = [&](const BatchStructure::Field& field) {
    const auto *here = own.find(field.name), *there = wanted.find(field.name);
    if (here != nullptr && there != nullptr && here->kind == there->kind && here->count == there->count) return;
    throw DataError("cannot stack field \"" + field.name + "\": " + name_of(added_) + " has " + field_text(here) +
                    " but " + name_of(0) + " has " + field_text(there) + "." + kMakeAlike);
  };
  for (const auto& field : wanted.fields) differs(field);
  for (const auto& field : own.fields) differs(field);
}

// The sample's fields in the order of the first sample's.
Batch SampleStacker::in_order(Batch sample) const {
  if (first_.structure() == nullptr || sample.structure() == nullptr) return sample;  // both have no fields
  Batch ordered;
  BatchStructure structure;
  for (const auto& field : first_.structure()->fields) {
    structure.add_copy(field.name, *sample.structure()->find(field.name), *sample.structure(), sample.tensors,
                       ordered.tensors);
  }
  ordered.set_structure(std::make_shared<const BatchStructure>(std::move(structure)));
  // Tensors without a name were added after the fields.
  ordered.tensors.insert(ordered.tensors.end(), sample.tensors.begin() + std::ssize(ordered.tensors),
                         sample.tensors.end());
  return ordered;
}

void SampleStacker::check_alike(const Batch& sample) const {
  if (sample.count() != first_.count()) {
    throw DataError("cannot stack: " + name_of(added_) + " holds " + levin::count_of(sample.count(), "tensor") +
                    " but " + name_of(0) + " holds " + std::to_string(first_.count()) + "." + kMakeAlike);
  }
  for (size_t k = 0; k < sample.count(); ++k) {
    if (columns_[k].is_ragged || alike(sample.tensors[k], first_.tensors[k])) continue;
    if (!first_.tensors[k].defined()) {
      throw DataError("cannot stack " + tensor_text(k) + ": " + name_of(0) +
                      " has an undefined tensor. Make get() return tensors that are defined, or give the loader a "
                      "collate function.");
    }
    const bool is_named = first_.structure() != nullptr;
    throw DataError("cannot stack " + tensor_text(k) + ": " + name_of(added_) + " has " + described(sample.tensors[k]) +
                    " but " + name_of(0) + " has " + described(first_.tensors[k]) + "." +
                    (is_named ? " Make get() return samples that are alike, make the field levin::Ragged, or give the "
                                "loader a collate function."
                              : kMakeAlike));
  }
}

void SampleStacker::start(const Batch& sample) {
  first_ = sample;
  columns_.resize(sample.count());
  if (sample.structure() != nullptr) {
    for (const auto& field : sample.structure()->fields) {
      const bool has_rows = field.kind == FieldKind::ragged || field.kind == FieldKind::texts;
      if (has_rows && field.count != 1) {
        throw DataError("cannot collate field \"" + field.name + "\": " + name_of(0) + " has " + field_text(&field) +
                        ", and a sample has one. Make get() return one, or give the loader a collate function.");
      }
      if (field.kind == FieldKind::ragged) columns_[field.first].is_ragged = true;
    }
    texts_.resize(sample.structure()->texts.size());
    values_.resize(sample.structure()->values.size());
  }
}

void SampleStacker::add(Batch sample) {
  if (added_ == 0) start(sample);
  if (!have_same_fields(sample, first_)) {
    check_fields(sample);
    sample = in_order(std::move(sample));
  }
  check_alike(sample);
  for (size_t k = 0; added_ == 0 && k < columns_.size(); ++k) columns_[k].start(sample.tensors[k], count_);
  for (size_t k = 0; k < columns_.size(); ++k) columns_[k].add(sample.tensors[k], added_, count_);
  for (size_t k = 0; k < texts_.size(); ++k) texts_[k].push_back(sample.structure()->texts[k][0]);
  for (size_t k = 0; k < values_.size(); ++k) {
    const BatchValue& value = sample.structure()->values[k];
    if (values_[k].empty() || value.type() == values_[k][0].type()) {
      values_[k].push_back(value);
      continue;
    }
    throw DataError("cannot collate values: " + name_of(added_) + " has one of type " + value.type_name() + " where " +
                    name_of(0) + " has one of type " + values_[k][0].type_name() + "." + kMakeAlike);
  }
  ++added_;
}

Batch SampleStacker::finish() && {
  Batch batch;
  std::vector<size_t> places;  // of each column's tensors
  for (auto& column : columns_) {
    places.push_back(batch.count());
    column.finish(added_, batch.tensors);
  }
  if (first_.structure() == nullptr) return batch;
  if (first_.structure()->has_tensors_only()) {
    batch.set_structure(first_.structure());
  } else {
    finish_fields(batch, places);
  }
  return batch;
}

void SampleStacker::finish_fields(Batch& batch, const std::vector<size_t>& places) {
  BatchStructure structure;
  for (const auto& field : first_.structure()->fields) {
    if (field.kind == FieldKind::texts) {
      structure.add_texts(field.name, std::move(texts_[field.first]));
    } else if (field.kind == FieldKind::value) {
      structure.add_value(field.name, BatchValue::concat(field.name, values_[field.first]));
    } else {
      const bool is_ragged = field.kind == FieldKind::ragged;
      const size_t place = field.count == 0 ? batch.count() : places[field.first];
      structure.add_tensors(field.name, field.kind, place, is_ragged ? added_ : field.count);
    }
  }
  batch.set_structure(std::make_shared<const BatchStructure>(std::move(structure)));
}

Batch stack_samples(const std::vector<Batch>& samples, const int64_t* indices) {
  SampleStacker stacker(samples.size(), indices);
  for (const Batch& sample : samples) stacker.add(sample);
  return std::move(stacker).finish();
}

}  // namespace levin
