// Loaders and data sets that are not as they claim: what the tests of a user's data share.
#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "levin/data/loader.h"
#include "levin/data/loading/dataset.h"
#include "levin/trainer/trainer_options.h"

namespace levin::test {

inline TrainerOptions quiet(int64_t epochs = 2) {
  TrainerOptions options;
  options.max_epochs = epochs;
  options.num_threads = 1;
  options.logger = false;
  options.enable_checkpointing = false;
  options.enable_progress_bar = false;
  options.enable_model_summary = false;
  return options;
}

/// A loader made of functions.
struct Source : Loader {
  Source(std::function<bool(int64_t, Batch&)> fetch_batch, std::optional<int64_t> batches)
      : fetch(std::move(fetch_batch)), count(batches) {}
  void start(int64_t, int64_t first_batch) override { at = first_batch; }
  bool next(Batch& batch) override { return fetch(at++, batch); }
  [[nodiscard]] std::optional<int64_t> num_batches() const override { return count; }
  std::function<bool(int64_t, Batch&)> fetch;
  std::optional<int64_t> count;
  int64_t at = 0;
};

inline Batch good_batch(int64_t rows = 4) {
  return {torch::full({rows, 4}, 0.5), torch::full({rows, 1}, 0.25)};
}

/// A loader of `real` good batches, which claims to have `claimed`.
inline std::shared_ptr<Source> batches(int64_t real, std::optional<int64_t> claimed) {
  return std::make_shared<Source>(
      [real](int64_t at, Batch& batch) {
        batch = good_batch();
        return at < real;
      },
      claimed);
}

/// A loader of six batches of which the one at index 2 is `odd`.
inline std::shared_ptr<Source> with_odd_batch(const std::function<Batch()>& odd) {
  return std::make_shared<Source>(
      [odd](int64_t at, Batch& batch) {
        batch = at == 2 ? odd() : good_batch();
        return at < 6;
      },
      6);
}

struct Samples : Dataset {
  explicit Samples(std::function<int64_t()> count) : size_now(std::move(count)) {}
  [[nodiscard]] int64_t size() const override { return size_now(); }
  [[nodiscard]] Batch get(int64_t index) const override {
    if (index >= 8) throw std::out_of_range("there is no row " + std::to_string(index));
    return {torch::full({4}, 0.1 * static_cast<double>(index)), torch::full({1}, 0.25)};
  }
  std::function<int64_t()> size_now;
};

}  // namespace levin::test
