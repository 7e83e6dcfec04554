// Collects the fields of a sample.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <vector>

#include "levin/data/batch.h"
#include "levin/data/streams/shard_file.h"

namespace levin::streams {

/// Which fields of a sample are wanted: "box" also stands for "box.x", all that is inside it.
class FieldChoice {
 public:
  FieldChoice() = default;
  /// None: all.
  explicit FieldChoice(std::vector<std::string> names) : names_(std::move(names)) {}

  /// Returns true if the field, one inside it, or one that it is inside of, is wanted.
  [[nodiscard]] bool wants(std::string_view field) const;
  /// Returns true if the field itself, or a field that it is inside of, is wanted.
  [[nodiscard]] bool wants_whole(std::string_view field) const;
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  /// Throws DataError naming `where` if a wanted field is not among `fields` or, with `columns`, inside one of them.
  void check(const std::string& where, const std::vector<std::string>& fields, bool columns = false) const;

 private:
  std::vector<std::string> names_ = {};
};

/// Makes the batch of one sample.
class SampleBuilder {
 public:
  SampleBuilder(const ShardFile& file, int64_t sample, const FieldChoice& choice)
      : file_(file), sample_(sample), choice_(choice) {}

  /// Add a field. They throw DataError if the sample has a field of this name, or too many.
  void add(const std::string& name, at::Tensor tensor);
  void add(const std::string& name, std::vector<at::Tensor> list);
  void add_text(const std::string& name, std::string text);

  [[nodiscard]] const ShardFile& file() const { return file_; }
  [[nodiscard]] int64_t sample() const { return sample_; }
  [[nodiscard]] const FieldChoice& choice() const { return choice_; }
  /// Returns the sample. Throws DataError if a wanted field is missing.
  [[nodiscard]] Batch finish();

 private:
  void check_new(const std::string& name) const;

  const ShardFile& file_;
  int64_t sample_;
  const FieldChoice& choice_;
  std::vector<at::Tensor> tensors_ = {};
  BatchStructure structure_ = {};
};

}  // namespace levin::streams
