// Short sequences first: training of a language model is more stable with them, and their steps cost less. C. Li,
// M. Zhang, Y. He, "The Stability-Efficiency Dilemma: Investigating Sequence Length Warmup for Training GPT Models",
// 2022.
//
//   data: {class_path: TextFile, init_args: {path: corpus.txt, block_size: 256, length_warmup: {start_length: 32,
//   batches: 2000}}}
#pragma once

#include <cstdint>
#include <memory>

#include "levin/core/options/fields.h"
#include "levin/data/loading/wrapped_loader.h"

namespace levin {

/// Options of SequenceLengthWarmup.
struct SequenceLengthWarmupOptions {
  int64_t start_length = 8;  // tokens of the first batches
  int64_t batches = 0;       // until the full length, each rank's own; 0: the full length from the start
  int64_t multiple_of = 8;   // lengths are multiples of this, for the sake of kernels
  template <class = void>
  static auto fields() {
    using O = SequenceLengthWarmupOptions;
    return levin::fields(
        field("start_length", &O::start_length, "tokens of the first batches").min(1),
        field("batches", &O::batches, "batches of a rank until the full length; 0: the full length from the start")
            .min(0),
        field("multiple_of", &O::multiple_of, "lengths are multiples of this").min(1));
  }
};

/// Returns the length of batch number `batch` of a run: linear from start_length to `full`, rounded down to a multiple,
/// but never below start_length.
[[nodiscard]] int64_t warmup_length(const SequenceLengthWarmupOptions& options, int64_t full, int64_t batch);

/// Another loader's batches, cut: of each tensor (batch, full_length, …) the first positions, as views. Tensors with
/// a different second dimension stay unchanged. The length is a function of epoch and batch, so a run that resumes
/// continues with the same ones, and all ranks have the same.
class SequenceLengthWarmup final : public WrappedLoader {
 public:
  using Options = SequenceLengthWarmupOptions;

  /// Throws ConfigError if start_length is above full_length, or `loader` does not know its number of batches.
  SequenceLengthWarmup(std::shared_ptr<Loader> loader, int64_t full_length, SequenceLengthWarmupOptions options);

  void start(int64_t epoch, int64_t first_batch = 0) override;
  bool next(Batch& batch) override;
  [[nodiscard]] ConfigNode written_options() const override;

 private:
  int64_t full_length_;
  SequenceLengthWarmupOptions options_;
  int64_t batch_ = 0;  // of the run
};

}  // namespace levin
