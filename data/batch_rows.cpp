#include "levin/data/batch_rows.h"

#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/core/tensors.h"
#include "levin/data/batch_memory.h"
#include "levin/data/batch_text.h"

namespace levin {

namespace {

void check_rows(const BatchStructure::Field& field, size_t rows, int64_t samples) {
  if (static_cast<int64_t>(rows) == samples) return;
  throw Error("Batch: the field \"" + field.name + "\" holds " +
              count_of(static_cast<int64_t>(rows), field.kind == FieldKind::texts ? "text" : "tensor") +
              ", and cannot be split with a batch of " + count_of(samples, "sample") + ". Give one for each sample.");
}

// For each tensor of the batch the ragged field of which it is a row, or null.
std::vector<const BatchStructure::Field*> owners_of_rows(const Batch& batch) {
  std::vector<const BatchStructure::Field*> owners(batch.count(), nullptr);
  for (const auto& field : batch.structure()->fields) {
    for (size_t i = 0; field.kind == FieldKind::ragged && i < field.count; ++i) owners[field.first + i] = &field;
  }
  return owners;
}

// The tensors of a part; returns where in it each tensor of the batch is, or would be.
std::vector<size_t> cut_tensors(const Batch& batch, size_t from, size_t count, const CutTensor& cut, Batch& part) {
  const auto owners = owners_of_rows(batch);
  std::vector<size_t> places;
  for (size_t i = 0; i < batch.count(); ++i) {
    places.push_back(part.count());
    const size_t row = owners[i] == nullptr ? 0 : i - owners[i]->first;
    if (owners[i] == nullptr) part.tensors.push_back(cut(i));
    if (owners[i] != nullptr && row >= from && row < from + count) part.tensors.push_back(batch.tensors[i]);
  }
  places.push_back(part.count());
  return places;
}

BatchValue cut_value(const BatchStructure::Field& field, const BatchValue& value, int64_t samples, int64_t from,
                     int64_t count) {
  const std::optional<int64_t> rows = value.is_whole() ? std::nullopt : value.rows();
  if (rows && *rows != samples) {
    throw Error("Batch: the field \"" + field.name + "\" holds " + count_of(*rows, "sample") + " of type " +
                value.type_name() + ", and cannot be split with a batch of " + count_of(samples, "sample") +
                ". Check levin::BatchTraits<" + value.type_name() + ">::rows() and concat().");
  }
  return value.slice(field.name, from, count);
}

thread_local bool pins = false;

// Returns the name of the tensor or list element at this index, or "".
std::string name_at(const Batch& batch, size_t place) {
  if (batch.structure() == nullptr) return "";
  for (const auto& field : batch.structure()->fields) {
    const bool is_here = place >= field.first && place < field.first + std::max<size_t>(field.count, 1);
    if (field.kind == FieldKind::tensor && place == field.first) return field.name + " ";
    if (field.kind == FieldKind::list && is_here) return field.name + "[" + std::to_string(place - field.first) + "] ";
  }
  return "";
}

// Samples that were left out are in none of the parts.
BatchSamples cut_samples(const BatchSamples& all, int64_t from, int64_t count) {
  BatchSamples part{.batch = all.batch, .loader = all.loader};
  const auto cut = [&](const auto& list, auto& to) {
    if (!list.empty()) to.assign(list.begin() + from, list.begin() + from + count);
  };
  cut(all.ids, part.ids);
  cut(all.indices, part.indices);
  return part;
}

}  // namespace

Batch cut_rows(const Batch& batch, int64_t from, int64_t count, const CutTensor& cut) {
  Batch part;
  if (batch.samples() != nullptr) part.set_samples(cut_samples(*batch.samples(), from, count));
  if (batch.structure() == nullptr || batch.structure()->has_tensors_only()) {
    for (size_t i = 0; i < batch.count(); ++i) part.tensors.push_back(cut(i));
    part.set_structure(batch.structure());
    return part;
  }
  const BatchStructure& whole = *batch.structure();
  const int64_t samples = batch.size();
  for (const auto& field : whole.fields) {
    if (field.kind == FieldKind::ragged) check_rows(field, field.count, samples);
  }
  const auto rows = static_cast<size_t>(count);
  const std::vector<size_t> places = cut_tensors(batch, static_cast<size_t>(from), rows, cut, part);
  BatchStructure structure;
  for (const auto& field : whole.fields) {
    if (field.kind == FieldKind::texts) {
      const auto& texts = whole.texts[field.first];
      check_rows(field, texts.size(), samples);
      const auto begin = texts.begin() + from;
      structure.add_texts(field.name, std::vector<std::string>(begin, begin + count));
    } else if (field.kind == FieldKind::value) {
      structure.add_value(field.name, cut_value(field, whole.values[field.first], samples, from, count));
    } else {
      structure.add_tensors(field.name, field.kind, places[field.first],
                            field.kind == FieldKind::ragged ? rows : field.count);
    }
  }
  part.set_structure(std::make_shared<const BatchStructure>(std::move(structure)));
  return part;
}

Batch rows_of(const Batch& batch, int64_t from, int64_t count) {
  return cut_rows(batch, from, count, [&](size_t place) {
    const at::Tensor& tensor = batch.tensors[place];
    return !tensor.defined() || tensor.dim() == 0 ? tensor : tensor.narrow(0, from, count);
  });
}

void append_fields(Batch& batch, const Batch& part) {
  const size_t before = batch.count();
  batch.tensors.insert(batch.tensors.end(), part.tensors.begin(), part.tensors.end());
  if (part.structure() == nullptr) return;
  BatchStructure structure = batch.structure() == nullptr ? BatchStructure() : *batch.structure();
  const BatchStructure& added = *part.structure();
  for (const auto& field : added.fields) {
    if (field.kind == FieldKind::texts) {
      structure.add_texts(field.name, added.texts[field.first]);
    } else if (field.kind == FieldKind::value) {
      structure.add_value(field.name, added.values[field.first]);
    } else {
      structure.add_tensors(field.name, field.kind, before + field.first, field.count);
    }
  }
  batch.set_structure(std::make_shared<const BatchStructure>(std::move(structure)));
}

bool have_same_fields(const Batch& one, const Batch& other) {
  if (one.structure() == other.structure()) return true;
  if (one.structure() == nullptr || other.structure() == nullptr) return false;
  return one.structure()->fields == other.structure()->fields;
}

void visit_values(Batch& batch, const TensorVisitor& visit) {
  if (!has_values(batch)) return;
  BatchStructure structure = *batch.structure();
  for (BatchValue& value : structure.values) {
    if (value.shows_tensors()) value = value.visited(visit);
  }
  batch.set_structure(std::make_shared<const BatchStructure>(std::move(structure)));
}

void check_can_move(const Batch& batch, at::Device device) {
  if (device.is_cpu() || !has_values(batch)) return;
  for (const auto& field : batch.structure()->fields) {
    if (field.kind != FieldKind::value) continue;
    const BatchValue& value = batch.structure()->values[field.first];
    if (value.shows_tensors()) continue;
    throw Error("Batch: the field \"" + field.name + "\" holds a value of type " + value.type_name() +
                ", which cannot be moved to " + device.str() + ": specialize levin::BatchTraits<" + value.type_name() +
                "> with tensors(), which visits its tensors, or none if it holds none (data/batch_value.h).");
  }
}

PinnedBatches::PinnedBatches(bool pinned) : before_(std::exchange(pins, pinned)) {}

PinnedBatches::~PinnedBatches() {
  pins = before_;
}

at::Tensor empty_batch(at::IntArrayRef sizes, const at::TensorOptions& options) {
  if (pins && options.device().is_cpu()) {
    try {
      return at::empty(sizes, options.pinned_memory(true));
    } catch (const c10::Error&) {  // such memory is limited: copies from ordinary memory are correct, but slower
      pins = false;
    }
  }
  return at::empty(sizes, options);
}

void pin_tensors(Batch& batch) {
  const auto pin = [](at::Tensor& tensor) {
    if (tensor.defined() && tensor.is_cpu()) tensor = pinned(tensor);
  };
  try {
    for (at::Tensor& tensor : batch.tensors) pin(tensor);
    visit_values(batch, pin);
  } catch (const c10::Error&) {  // the rest stays where it is
  }
}

std::string batch_text(const Batch& batch) {
  std::string text;
  for (size_t k = 0; k < batch.tensors.size(); ++k) {
    const at::Tensor& tensor = batch.tensors[k];
    text += (k == 0 ? "" : ", ") + name_at(batch, k);
    text += tensor.defined() ? shape_text(tensor.sizes()) + " " + c10::toString(tensor.scalar_type()) : "undefined";
  }
  return text.empty() ? "no tensor" : text;
}

}  // namespace levin
