// A user's data sets, samplers, loaders and data modules, in which every function can throw: see faulty_parts.h.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "levin/data/data_module.h"
#include "levin/data/loading/dataloader.h"
#include "levin/data/loading/dataset.h"
#include "reliability/fault_points.h"

namespace levin::test {

/// The rows of tiny_loader(), one at a time.
class FaultyDataset final : public Dataset {
 public:
  explicit FaultyDataset(int64_t samples) : samples_(samples) {}
  [[nodiscard]] int64_t size() const override {
    reach("Dataset::size");
    return samples_;
  }
  [[nodiscard]] Batch get(int64_t i) const override {
    reach("Dataset::get");
    const at::Tensor x = (i * 7 + torch::arange(4) * 3).remainder(17).to(at::kFloat) / 17 - 0.5;  // (4)
    return {x, torch::full({1}, static_cast<double>(i % 5) / 5)};
  }
  [[nodiscard]] std::string sample_id(int64_t index) const override {
    reach("Dataset::sample_id");
    return std::to_string(index);
  }

 private:
  int64_t samples_;
};

class FaultySampler final : public Sampler {
 public:
  explicit FaultySampler(int64_t samples) : samples_(samples) {}
  [[nodiscard]] int64_t size() const override {
    reach("Sampler::size");
    return samples_;
  }
  [[nodiscard]] at::Tensor order(uint64_t, int64_t epoch) const override {
    reach("Sampler::order");
    return (torch::arange(samples_) + epoch).remainder(samples_);
  }
  [[nodiscard]] bool is_sequential() const override {
    reach("Sampler::is_sequential");
    return false;
  }

 private:
  int64_t samples_;
};

class FaultyBatchSampler final : public BatchSampler {
 public:
  explicit FaultyBatchSampler(int64_t samples) : samples_(samples) {}
  [[nodiscard]] std::optional<int64_t> num_batches() const override {
    reach("BatchSampler::num_batches");
    return samples_ / 4;
  }
  [[nodiscard]] IndexBatches batches(uint64_t, int64_t) const override {
    reach("BatchSampler::batches");
    IndexBatches all(static_cast<size_t>(samples_ / 4));
    for (int64_t i = 0; i < samples_; ++i) all[static_cast<size_t>(i / 4)].push_back(i);
    return all;
  }
  [[nodiscard]] bool may_split() const override {
    reach("BatchSampler::may_split");
    return false;
  }
  [[nodiscard]] std::optional<int64_t> batch_size() const override {
    reach("BatchSampler::batch_size");
    return 4;
  }

 private:
  int64_t samples_;
};

inline Batch faulty_collate(std::vector<Batch> samples) {
  reach("collate");
  std::vector<at::Tensor> x, y;
  for (const Batch& sample : samples) {
    x.push_back(sample[0]);
    y.push_back(sample[1]);
  }
  return {torch::stack(x), torch::stack(y)};
}

/// A loader around a DataLoader.
class FaultyLoader final : public Loader {
 public:
  explicit FaultyLoader(DataLoader inner) : inner_(std::move(inner)) {}
  void start(int64_t epoch, int64_t first_batch) override {
    reach("Loader::start");
    inner_.start(epoch, first_batch);
  }
  bool next(Batch& batch) override {
    reach("Loader::next");
    return inner_.next(batch);
  }
  [[nodiscard]] bool may_be_read_ahead() const override {
    reach("Loader::may_be_read_ahead");
    return true;
  }
  [[nodiscard]] State state_dict() const override {
    reach("Loader::state_dict");
    return counted_state(0);
  }
  void load_state_dict(const State&) override { reach("Loader::load_state_dict"); }
  void add_to_checkpoint(State&) const override { reach("Loader::add_to_checkpoint"); }
  void stop() override {
    reach("Loader::stop");
    inner_.stop();
  }
  [[nodiscard]] std::optional<int64_t> num_batches() const override {
    reach("Loader::num_batches");
    return inner_.num_batches();
  }
  [[nodiscard]] std::optional<int64_t> batch_size() const override {
    reach("Loader::batch_size");
    return inner_.batch_size();
  }
  bool set_batch_size(int64_t samples) override {
    reach("Loader::set_batch_size");
    return inner_.set_batch_size(samples);
  }
  void use_sequential_order() override {
    reach("Loader::use_sequential_order");
    inner_.use_sequential_order();
  }
  bool shard(int64_t rank, int64_t world_size, bool padded) override {
    reach("Loader::shard");
    return inner_.shard(rank, world_size, padded);
  }
  void pin_memory(bool) override { reach("Loader::pin_memory"); }
  void identify_samples(bool identifies) override {
    reach("Loader::identify_samples");
    inner_.identify_samples(identifies);
  }
  [[nodiscard]] ConfigNode written_options() const override {
    reach("Loader::written_options");
    return {};
  }
  [[nodiscard]] int64_t num_workers() const override {
    reach("Loader::num_workers");
    return inner_.num_workers();
  }

 private:
  DataLoader inner_;
};

/// 12 training samples in batches of 4; 8 to evaluate on.
class FaultyData final : public DataModule {
 public:
  explicit FaultyData(int64_t num_workers = 0) : num_workers_(num_workers) {}
  // clang-format off
  LEVIN_POINT(DataModule, prepare_data, ())
  LEVIN_POINT(DataModule, setup, (Stage))
  LEVIN_POINT(DataModule, teardown, (Stage))
  LEVIN_POINT(DataModule, on_exception, (const std::exception&))
  LEVIN_POINT(DataModule, load_state_dict, (const State&))
  // clang-format on
  [[nodiscard]] State state_dict() const override {
    reach("DataModule::state_dict");
    return counted_state(2);
  }
  std::shared_ptr<Loader> train_dataloader() override {
    reach("DataModule::train_dataloader");
    return std::make_shared<FaultyLoader>(DataLoader(std::make_shared<FaultyDataset>(12), options(),
                                                     std::make_shared<FaultySampler>(12), faulty_collate));
  }
  Loaders val_dataloader() override {
    reach("DataModule::val_dataloader");
    return DataLoader(std::make_shared<FaultyDataset>(8), {.num_workers = num_workers_},
                      std::make_shared<FaultyBatchSampler>(8));
  }
  Loaders test_dataloader() override {
    reach("DataModule::test_dataloader");
    return DataLoader(std::make_shared<FaultyDataset>(8), options());
  }
  Loaders predict_dataloader() override {
    reach("DataModule::predict_dataloader");
    return DataLoader(std::make_shared<FaultyDataset>(8), options());
  }
  Batch on_before_batch_transfer(Batch batch, int64_t) override {
    reach("DataModule::on_before_batch_transfer");
    return batch;
  }
  Batch on_after_batch_transfer(Batch batch, int64_t) override {
    reach("DataModule::on_after_batch_transfer");
    return batch;
  }
  [[nodiscard]] std::string about_dtypes() const override {
    reach("DataModule::about_dtypes");
    return "";
  }

 private:
  [[nodiscard]] DataLoaderOptions options() const { return {.batch_size = 4, .num_workers = num_workers_}; }
  int64_t num_workers_;
};

}  // namespace levin::test
