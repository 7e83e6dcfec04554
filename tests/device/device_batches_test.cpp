// Batches on their way to a device are made in page-locked memory, from which it copies asynchronously.
#include <gtest/gtest.h>

#include "device/on_test_device.h"
#include "levin/data/batch_memory.h"
#include "levin/data/loading/combined_loader.h"
#include "levin/data/loading/dataloader.h"

namespace levin::device_batches_test {
namespace {

using namespace test;

at::Tensor rows(int64_t count) {
  return torch::arange(count * 3, torch::kFloat).view({count, 3});
}

std::shared_ptr<TensorDataset> gathered(int64_t count = 10) {
  return std::make_shared<TensorDataset>(std::vector<at::Tensor>{rows(count), torch::arange(count)});
}

// Samples of ordinary memory, one by one.
class Samples final : public Dataset {
 public:
  [[nodiscard]] int64_t size() const override { return 10; }
  [[nodiscard]] Batch get(int64_t index) const override { return {rows(10)[index], torch::tensor(index)}; }
};

// A batch with a part that has gaps, and one that cannot be pinned.
class Whole final : public Dataset {
 public:
  [[nodiscard]] int64_t size() const override { return 10; }
  [[nodiscard]] Batch get(int64_t) const override { return {}; }
  [[nodiscard]] bool has_get_batch() const override { return true; }
  [[nodiscard]] Batch get_batch(const at::Tensor& indices) const override {
    const at::Tensor all = rows(10).index_select(0, indices);
    return {all.narrow(1, 0, 2), all.to_sparse()};
  }
};

Batch first_batch(Loader& loader, bool pins) {
  loader.pin_memory(pins);
  loader.start(0);
  Batch batch;
  EXPECT_TRUE(loader.next(batch));
  return batch;
}

std::vector<bool> pinned_of(const Batch& batch) {
  std::vector<bool> pinned;
  for (const at::Tensor& tensor : batch.tensors) {
    pinned.push_back(tensor.layout() == torch::kStrided && tensor.is_pinned());
  }
  return pinned;
}

using Pinned = std::vector<bool>;

void expect_pinned(const std::shared_ptr<Dataset>& data, DataLoaderOptions options, const Pinned& expected,
                   const Collate& collate = nullptr) {
  options.batch_size = 4;
  options.seed = 5;
  DataLoader loader(data, options, nullptr, collate);
  const Batch there = first_batch(loader, true), plain = first_batch(loader, false);
  EXPECT_EQ(pinned_of(there), expected);
  EXPECT_EQ(pinned_of(plain), Pinned(plain.count(), false));
  for (size_t k = 0; k < plain.count(); ++k) {
    EXPECT_TRUE(torch::equal(there[k].to_dense(), plain[k].to_dense())) << "tensor " << k;
  }
}

TEST(DeviceBatches, are_gathered_and_stacked_in_pinned_memory) {
  expect_pinned(gathered(), {.shuffle = true}, {true, true});
  expect_pinned(gathered(), {.shuffle = true, .num_workers = 2}, {true, true});
  expect_pinned(std::make_shared<Samples>(), {.shuffle = true}, {true, true});
}

TEST(DeviceBatches, of_other_memory_are_copied_by_the_workers) {
  const Collate collate = [](std::vector<Batch> samples) { return stack_samples(samples); };
  for (const int64_t workers : {0, 2}) {
    SCOPED_TRACE(workers);
    expect_pinned(gathered(), {.num_workers = workers}, Pinned(2, workers > 0));  // views of the data
    expect_pinned(std::make_shared<Whole>(), {.num_workers = workers}, {workers > 0, false});
    expect_pinned(std::make_shared<Samples>(), {.num_workers = workers}, {true, true}, collate);
  }
}

TEST(DeviceBatches, of_combined_loaders_are_in_pinned_memory) {
  const auto loader = std::make_shared<DataLoader>(gathered(), DataLoaderOptions{.batch_size = 4, .shuffle = true});
  CombinedLoader combined({loader}, {.names = {"a"}});
  EXPECT_EQ(pinned_of(first_batch(combined, true)), Pinned(2, true));
  EXPECT_EQ(pinned_of(first_batch(combined, false)), Pinned(2, false));
}

TEST(DeviceBatches, are_in_ordinary_memory_where_there_is_no_other) {
  set_device_streams(false);
  expect_pinned(gathered(), {.shuffle = true}, {false, false});
  expect_pinned(gathered(), {.num_workers = 1}, {false, false});
  set_device_streams(true);
}

TEST(DeviceBatches, a_tensor_of_a_batch_is_pinned_within_the_scope_only) {
  const auto is_pinned = [] { return empty_batch({2}, torch::kFloat).is_pinned(); };
  EXPECT_FALSE(is_pinned());
  {
    const PinnedBatches outer(true);
    EXPECT_TRUE(is_pinned());
    {
      const PinnedBatches inner(false);
      EXPECT_FALSE(is_pinned());
    }
    EXPECT_TRUE(is_pinned());
    const at::Device device(kTestDeviceType, 0);
    EXPECT_EQ(empty_batch({2}, torch::TensorOptions(torch::kFloat).device(device)).device(), device);
  }
  EXPECT_FALSE(is_pinned());
}

// Looks at what it is asked for.
class Asked final : public Dataset {
 public:
  [[nodiscard]] int64_t size() const override { return inputs_.size(0); }
  [[nodiscard]] Batch get(int64_t) const override { return {}; }
  [[nodiscard]] bool has_get_batch() const override { return true; }
  [[nodiscard]] Batch get_batch(const at::Tensor& indices) const override {
    pinned = empty_batch({1}, torch::kFloat).is_pinned();
    return {inputs_.index_select(0, indices), indices % 3};
  }
  mutable bool pinned = false;

 private:
  at::Tensor inputs_ = torch::randn({32, 2, 6, 6});
};

bool asks_for_pinned_memory(const std::string& accelerator, const std::shared_ptr<DataLoader>& loader) {
  TrainerOptions options = on_test_device(1);
  options.accelerator = accelerator;
  DeviceNet module;
  Trainer(options).fit(module, loader);
  return dynamic_cast<const Asked&>(*loader->dataset()).pinned;
}

TEST(DeviceBatches, are_pinned_in_runs_that_copy_them_ahead) {
  const auto loader =
      std::make_shared<DataLoader>(std::make_shared<Asked>(), DataLoaderOptions{.batch_size = 8, .shuffle = true});
  EXPECT_TRUE(asks_for_pinned_memory(kTestDevice, loader));
  EXPECT_FALSE(asks_for_pinned_memory("cpu", loader)) << "the same loader later";
  set_device_streams(false);
  EXPECT_FALSE(asks_for_pinned_memory(kTestDevice, loader));
  set_device_streams(true);
}

}  // namespace
}  // namespace levin::device_batches_test
