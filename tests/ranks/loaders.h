// What rank_program trains from.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/data/loading/dataloader.h"
#include "levin/data/loading/length_batch_sampler.h"
#include "ranks/hanging_data.h"
#include "ranks/run_arguments.h"
#include "ranks/samples.h"
#include "ranks/stream.h"

namespace levin::test {

// Samples of 1 to 5 tokens, as far as batches are concerned.
inline std::shared_ptr<BatchSampler> by_length(int64_t samples, int64_t max_tokens) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < samples; ++i) lengths.push_back(1 + i % 5);
  return std::make_shared<LengthBatchSampler>(std::make_shared<RandomSampler>(samples), lengths,
                                              LengthBatchSamplerOptions{.max_tokens = max_tokens, .shuffle = true});
}

inline std::shared_ptr<Loader> make_loader(const RunArguments& arguments, const Batch& data) {
  const int64_t batch = arguments.number("batch", 4);
  if (arguments.has("hang_data")) {
    const std::string mark = arguments.text("out", ".") + "/hangs";
    return std::make_shared<DataLoader>(std::make_shared<HangingData>(data, arguments.number("hang_data", 0), mark),
                                        DataLoaderOptions{.batch_size = batch});
  }
  if (arguments.has("stream")) return std::make_shared<Stream>(data, arguments.number("stream", 4));
  const auto samples = std::make_shared<TensorDataset>(std::vector<at::Tensor>{data[0], data[1]});
  const DataLoaderOptions options{.batch_size = batch, .shuffle = arguments.has("shuffle")};
  if (arguments.has("interleave"))
    return std::make_shared<DataLoader>(samples, options,
                                        interleaved(data[0].size(0), batch, arguments.number("interleave", 2)));
  if (!arguments.has("by_length")) return std::make_shared<DataLoader>(samples, options);
  return std::make_shared<DataLoader>(samples, DataLoaderOptions{},
                                      by_length(data[0].size(0), arguments.number("by_length", 10)));
}

// Batches of 2 of the first samples. `only`: one rank gets them all, and the others none; `unsized`: it does not tell
// how many, as a stream.
class ValidationLoader final : public Loader {
 public:
  ValidationLoader(const Batch& data, int64_t samples, std::optional<int64_t> only, bool unsized)
      : data_({data[0].slice(0, 0, samples), data[1].slice(0, 0, samples)}), only_(only), unsized_(unsized) {}
  void start(int64_t epoch, int64_t first) override { loader_.start(epoch, first); }
  bool next(Batch& batch) override { return !empty_ && loader_.next(batch); }
  [[nodiscard]] std::optional<int64_t> num_batches() const override {
    if (unsized_) return std::nullopt;
    return empty_ ? 0 : loader_.num_batches();
  }
  bool shard(int64_t rank, int64_t world_size, bool padded) override {
    if (!only_) return loader_.shard(rank, world_size, padded);
    empty_ = rank != *only_;
    return true;
  }

 private:
  Batch data_;
  std::optional<int64_t> only_;
  bool unsized_;
  bool empty_ = false;
  DataLoader loader_{std::make_shared<TensorDataset>(std::vector<at::Tensor>{data_[0], data_[1]}),
                     DataLoaderOptions{.batch_size = 2}};
};

// val=N: of the first N samples; val2=N: a second loader; val_of=R: rank R has all batches of the first.
inline Loaders make_val_loaders(const RunArguments& arguments, const Batch& data) {
  std::vector<std::shared_ptr<Loader>> all;
  const std::optional<int64_t> only =
      arguments.has("val_of") ? std::optional(arguments.number("val_of", 0)) : std::nullopt;
  const bool unsized = arguments.has("val_unsized");
  if (arguments.has("val")) {
    all.push_back(std::make_shared<ValidationLoader>(data, arguments.number("val", 5), only, unsized));
  }
  if (arguments.has("val2")) {
    all.push_back(std::make_shared<ValidationLoader>(data, arguments.number("val2", 5), std::nullopt, unsized));
  }
  return all;
}

}  // namespace levin::test
