// The fields of a batch: what Batch is made of, and how it keeps it.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "levin/data/batch_value.h"

namespace levin {

struct Batch;

/// What a field of a batch contains: a tensor, several, one per sample, strings, or a value of another type.
enum class FieldKind { tensor, list, ragged, texts, value };

/// One tensor per sample, of any shape, such as the boxes of each image. The sample that get() returns holds one
/// tensor. Collating does not stack the tensors; splitting a batch splits between them.
struct Ragged {
  std::vector<at::Tensor> rows = {};

  Ragged(std::initializer_list<at::Tensor> list) : rows(list) {}
  explicit Ragged(std::vector<at::Tensor> list) : rows(std::move(list)) {}
};

/// A name and its content: {"input_ids", ids}.
class BatchField {
 public:
  using Content = std::variant<at::Tensor, std::vector<at::Tensor>, Ragged, std::vector<std::string>, BatchValue,
                               std::shared_ptr<const Batch>>;

  /// A tensor (batch, …), or without the batch dimension in a sample.
  BatchField(std::string name, at::Tensor tensor) : name_(std::move(name)), content_(std::move(tensor)) {}
  /// Several such tensors under one name, e.g. two views of each image.
  BatchField(std::string name, std::vector<at::Tensor> list) : name_(std::move(name)), content_(std::move(list)) {}
  BatchField(std::string name, std::initializer_list<at::Tensor> list)
      : name_(std::move(name)), content_(std::vector<at::Tensor>(list)) {}
  BatchField(std::string name, Ragged ragged) : name_(std::move(name)), content_(std::move(ragged)) {}
  /// One string per sample.
  BatchField(std::string name, std::vector<std::string> texts) : name_(std::move(name)), content_(std::move(texts)) {}
  BatchField(std::string name, std::initializer_list<const char*> texts)
      : name_(std::move(name)), content_(std::vector<std::string>(texts.begin(), texts.end())) {}
  /// The string of one sample.
  BatchField(std::string name, const char* text) : BatchField(std::move(name), {text}) {}
  template <class T>
  requires std::convertible_to<T, std::string_view> BatchField(std::string name, const T& text)
      : name_(std::move(name)), content_(std::vector<std::string>{std::string(std::string_view(text))}) {}
  /// A value of a type of your own: see BatchTraits.
  BatchField(std::string name, BatchValue value) : name_(std::move(name)), content_(std::move(value)) {}
  template <class T>
  requires(std::is_class_v<T> && !std::convertible_to<T, std::string_view> && !std::convertible_to<T, at::Tensor> &&
           !std::convertible_to<T, std::vector<at::Tensor>> && !std::convertible_to<T, std::vector<std::string>>)
      BatchField(std::string name, T value)
      : name_(std::move(name)), content_(BatchValue(std::move(value))) {}
  /// A batch inside the batch: its field "x" becomes "name.x", its unnamed tensor 0 "name.0".
  BatchField(std::string name, const Batch& batch);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const Content& content() const { return content_; }

 private:
  std::string name_;
  Content content_;
};

/// Where the fields of a batch are. Constant; similar batches share it.
struct BatchStructure {
  /// One field: its name and kind, and the position of its content.
  struct Field {
    std::string name;
    FieldKind kind;
    size_t first;  // index in Batch::tensors; for strings and values, in the lists below
    size_t count;  // number of tensors or strings
    bool operator==(const Field&) const = default;
  };
  std::vector<Field> fields = {};
  std::vector<std::vector<std::string>> texts = {};
  std::vector<BatchValue> values = {};

  [[nodiscard]] const Field* find(std::string_view name) const;
  [[nodiscard]] std::vector<std::string> names() const;
  /// Returns true if there are only tensors and lists of tensors: the parts of such a batch have the same structure.
  [[nodiscard]] bool has_tensors_only() const;
  /// Returns the first field of strings or a value, which stays in host memory; null if there is none.
  [[nodiscard]] const Field* on_host() const;

  /// Adds a field of `count` tensors starting at index `first`. This function and the next three throw Error if the
  /// name is empty or taken.
  void add_tensors(const std::string& name, FieldKind kind, size_t first, size_t count);
  void add_texts(const std::string& name, std::vector<std::string> texts);
  void add_value(const std::string& name, BatchValue value);
  /// Adds a copy of a field of another batch, whose tensors are `from_tensors`, and its tensors to `tensors`.
  void add_copy(const std::string& name, const Field& field, const BatchStructure& from, at::TensorList from_tensors,
                std::vector<at::Tensor>& tensors);

 private:
  void add(Field field);
};

/// Names for the tensors of similar batches, created once: `return {{x, y}, kNames};`.
class BatchNames {
 public:
  /// Throws Error for a name that is empty or given twice.
  explicit BatchNames(const std::vector<std::string>& names);
  BatchNames(std::initializer_list<const char*> names)
      : BatchNames(std::vector<std::string>(names.begin(), names.end())) {}

  [[nodiscard]] const std::shared_ptr<const BatchStructure>& structure() const { return structure_; }
  /// Returns the number of named tensors.
  [[nodiscard]] size_t count() const { return structure_->fields.size(); }

 private:
  std::shared_ptr<const BatchStructure> structure_;
};

}  // namespace levin
