// Parameters concatenated in one flat tensor, of which each rank owns an equal part: the FlatParameter of PyTorch's
// FSDP (Zhao et al. 2023, https://arxiv.org/abs/2304.11277). Layout and memory only, without communication.
//
//   flat     | weight 0 … 5 | bias 6 7 8 | padding |        whole(): (padded size), in the compute type
//   rank 0   |-------- part --------|                        part(): (padded size / ranks), in the parameters' own type
//   rank 1                          |----- part ----|
//
// The module's tensors stay the same objects throughout. show_whole() makes them views of the whole, each in its own
// shape; show_part() makes them views of their elements in this rank's part, flat, possibly empty: an optimizer then
// updates, and keeps state for, only its rank's part, with its usual groups and numbering and without special code.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/strategies/sharding.h"

namespace levin {

class FlatUnit {
 public:
  struct Entry {
    std::string name;
    at::Tensor param;            // the module's
    std::vector<int64_t> shape;  // of the whole
    int64_t begin = 0;           // in the flat tensor
    int64_t size = 0;
  };
  struct Options {
    int64_t rank = 0;
    int64_t ranks = 1;
    std::optional<at::ScalarType> compute_dtype = {};   // unset: the parameters' own
    bool keeps_whole = true;                            // false: the whole's memory may be freed
    std::optional<at::Device> part_device = {};         // unset: the whole's
    std::optional<at::Device> device = {};              // of the whole; unset: the parameters' own
    std::function<void(at::Tensor& whole)> agree = {};  // may change the values before they are sharded
  };

  /// Takes over the parameters' values, which must be of one type and device, and releases their previous memory.
  FlatUnit(const std::vector<std::pair<std::string, at::Tensor>>& params, const Options& options);

  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
  [[nodiscard]] int64_t part_size() const { return part_size_; }
  [[nodiscard]] const at::Tensor& whole() const { return whole_; }
  [[nodiscard]] const at::Tensor& part() const { return part_; }
  /// This rank's range of the whole: a view. Requires has_whole().
  [[nodiscard]] at::Tensor own_stretch(const at::Tensor& flat) const;

  /// Whether the whole has memory; the caller is responsible for its contents.
  [[nodiscard]] bool has_whole() const { return whole_.storage().nbytes() > 0; }
  void allocate_whole();
  /// Frees the memory. Views of the whole, including autograd's, stay and are valid again after the next
  /// allocate_whole(): until then nothing may read them.
  void free_whole();

  void show_whole();
  void show_part();

  /// The range of entry `i`, flattened, that is in this rank's part.
  [[nodiscard]] ShardRange range(size_t i) const { return range_on(i, rank_); }
  [[nodiscard]] ShardRange range_on(size_t i, int64_t rank) const;
  /// That range of a tensor with the layout of part(): a view.
  [[nodiscard]] at::Tensor in_part(const at::Tensor& part, size_t i) const;

 private:
  int64_t rank_ = 0;
  int64_t part_size_ = 0;
  std::vector<Entry> entries_;
  at::Tensor whole_;
  std::vector<at::Tensor> views_;  // of the whole, by entry; they cannot be made while it has no memory
  at::Tensor part_;                // a view of the whole if that is kept and has the same type and device
};

/// Groups the parameters into units that are gathered and reduced together: in the module's order, about `bytes` each,
/// of one type each; the parameters of a layer ("net.0.weight", "net.0.bias") are not separated. A tensor that has two
/// names counts once.
[[nodiscard]] std::vector<std::vector<std::pair<std::string, at::Tensor>>> unit_parameters(
    const std::vector<std::pair<std::string, at::Tensor>>& params, int64_t bytes);

/// For messages: "unit 2 (net.4.weight, net.4.bias)".
[[nodiscard]] std::string unit_text(const std::vector<std::unique_ptr<FlatUnit>>& units, size_t k);

}  // namespace levin
