// What rank_program trains from.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "levin/data/loading/dataloader.h"
#include "levin/data/loading/length_batch_sampler.h"
#include "ranks/hanging_data.h"
#include "ranks/samples.h"
#include "ranks/stream.h"
#include "ranks/words.h"

namespace levin::test {

// Samples of 1 to 5 tokens, as far as batches are concerned.
inline std::shared_ptr<BatchSampler> by_length(int64_t samples, int64_t max_tokens) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < samples; ++i) lengths.push_back(1 + i % 5);
  return std::make_shared<LengthBatchSampler>(std::make_shared<RandomSampler>(samples), lengths,
                                              LengthBatchSamplerOptions{.max_tokens = max_tokens, .shuffle = true});
}

inline std::shared_ptr<Loader> make_loader(const Words& words, const Batch& data) {
  const int64_t batch = words.number("batch", 4);
  if (words.has("hang_data")) {
    const std::string mark = words.text("out", ".") + "/hangs";
    return std::make_shared<DataLoader>(std::make_shared<HangingData>(data, words.number("hang_data", 0), mark),
                                        DataLoaderOptions{.batch_size = batch});
  }
  if (words.has("stream")) return std::make_shared<Stream>(data, words.number("stream", 4));
  const auto samples = std::make_shared<TensorDataset>(std::vector<at::Tensor>{data[0], data[1]});
  const DataLoaderOptions options{.batch_size = batch, .shuffle = words.has("shuffle")};
  if (words.has("interleave"))
    return std::make_shared<DataLoader>(samples, options,
                                        interleaved(data[0].size(0), batch, words.number("interleave", 2)));
  if (!words.has("by_length")) return std::make_shared<DataLoader>(samples, options);
  return std::make_shared<DataLoader>(samples, DataLoaderOptions{},
                                      by_length(data[0].size(0), words.number("by_length", 10)));
}

}  // namespace levin::test
