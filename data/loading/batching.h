// How a data module makes batches, as an option of its own:
//
//   data: {class_path: TextCsv, init_args: {path: reviews.csv, batching: {max_tokens: 4096, bucket_by_length: true}}}
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <memory>

#include "levin/core/options/fields.h"
#include "levin/core/options/value.h"
#include "levin/data/loader.h"
#include "levin/data/loading/dataloader.h"
#include "levin/data/loading/dataset.h"

namespace levin {

/// How samples are drawn. none: each sample once; balanced: with replacement, each class equally often.
enum class SampleWeights { none, balanced };

template <>
struct EnumNames<SampleWeights> {
  static constexpr EnumName<SampleWeights> names[] = {{"none", SampleWeights::none},
                                                      {"balanced", SampleWeights::balanced}};
};

/// Options of data modules for training batches. check_batching() finds options that contradict each other.
struct BatchingOptions {
  EnumOption<SampleWeights> weights = SampleWeights::none;
  bool stratified = false;        // each batch has the classes in the data's proportions
  bool bucket_by_length = false;  // samples of similar length together
  int64_t max_tokens = 0;         // longest sample x samples of a batch, instead of batch_size; 0: batch_size
  template <class = void>
  static auto fields() {
    using O = BatchingOptions;
    return levin::fields(
        field("weights", &O::weights,
              "balanced: samples are drawn with replacement, each class equally often; none: each sample once"),
        field("stratified", &O::stratified, "each batch has the classes in the proportions of the data"),
        field("bucket_by_length", &O::bucket_by_length, "samples of similar length together, so that less is padded"),
        field("max_tokens", &O::max_tokens,
              "longest sample x samples of a batch, at most, instead of batch_size; 0: batch_size")
            .min(0));
  }
  [[nodiscard]] bool by_length() const { return bucket_by_length || max_tokens > 0; }
};

namespace detail {
/// The fields that the options of data modules of rows share.
template <class O>
FieldList row_fields() {
  return levin::fields(
      field("batch_size", &O::batch_size, "samples of a batch").min(1),
      field("val_fraction", &O::val_fraction, "of the rows, held out for validation").min(0.0).below(1.0),
      field("split_seed", &O::split_seed, "which rows are held out").min(0),
      field("num_workers", &O::num_workers, "threads that fetch batches ahead").min(0).max(1024).ranks_may_differ(),
      field("shuffle", &O::shuffle, "a new order of the training rows every epoch; false: the order of the file"),
      field("drop_last", &O::drop_last, "leave out an incomplete last training batch"));
}
}  // namespace detail

/// Throws ConfigError if options contradict each other or `drop_last`; `path` is how the user reaches them.
void check_batching(const BatchingOptions& batching, const std::string& path, bool drop_last = false);

/// The samples that a loader visits: a data set, or some of its rows.
struct SampleSet {
  std::shared_ptr<Dataset> dataset = nullptr;
  at::Tensor rows = {};    // (m) int64; undefined: all
  at::Tensor labels = {};  // (n) int64, the class of each sample of the data set; undefined: there are none
};

/// Returns a loader of `samples` in batches as `batching` says; `options` gives the rest.
[[nodiscard]] std::shared_ptr<DataLoader> batched_loader(const SampleSet& samples, const DataLoaderOptions& options,
                                                         const BatchingOptions& batching = {});

}  // namespace levin
