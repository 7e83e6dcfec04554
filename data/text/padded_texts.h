// Texts of unequal length with a class each, kept without padding and padded when gathered: all to one length, or those
// of a batch to the longest of them.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "levin/data/loading/dataset.h"

namespace levin {

/// How long samples are after padding: max_length tokens, or as long as the longest of the batch.
enum class Padding { max_length, longest };

/// Tokenized documents and their classes. Sample i is x ("input_ids"), its tokens followed by `pad` up to max_length or
/// to the longest document of the batch, (length) int64, and y ("labels"), its class, () int64. There is no y if any
/// document has no class.
class PaddedTexts final : public Dataset {
 public:
  PaddedTexts(int64_t max_length, int32_t pad, Padding padding = Padding::max_length)
      : max_length_(max_length), pad_(pad), padding_(padding) {}

  /// Tokens beyond max_length are cut off, except for the last: `tokens` ends with </s>, so does what is kept. `label`
  /// -1: it has no class. `id`: see Dataset::sample_id; "": its number.
  void add(const std::vector<int32_t>& tokens, int64_t label, std::string id = "");

  [[nodiscard]] int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  [[nodiscard]] Batch get(int64_t index) const override;
  [[nodiscard]] bool has_get_batch() const override { return true; }
  [[nodiscard]] Batch get_batch(const at::Tensor& indices) const override;
  /// Tokens, without padding.
  [[nodiscard]] int64_t length(int64_t index) const override;
  [[nodiscard]] std::string sample_id(int64_t index) const override {
    const std::string& id = ids_.at(static_cast<size_t>(index));
    return id.empty() ? std::to_string(index) : id;
  }
  /// (size) int64.
  [[nodiscard]] at::Tensor labels() const;

 private:
  void write(int64_t index, int64_t width, int64_t* to) const;

  int64_t max_length_;
  int32_t pad_;
  Padding padding_;
  std::vector<int32_t> tokens_;       // of all documents
  std::vector<size_t> starts_ = {0};  // of each text in tokens_, and the end
  std::vector<int64_t> labels_;
  std::vector<std::string> ids_;
  bool has_labels_ = true;
};

}  // namespace levin
