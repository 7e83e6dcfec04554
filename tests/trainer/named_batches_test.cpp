// Training with named batches: bitwise identical to lists, when batches are moved, divided, recorded or changed.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <mutex>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/callbacks/mixed_batches.h"
#include "levin/callbacks/prediction_writer.h"
#include "levin/core/files/files.h"
#include "levin/data/batch_rows.h"
#include "levin/data/loading/dataloader.h"
#include "levin/strategies/device/dp.h"
#include "levin/strategies/device/model_parallel.h"
#include "levin/trainer/loops/measure_chain.h"
#include "levin/trainer/run/batch_stream.h"
#include "support/captured_console.h"
#include "support/parted_module.h"
#include "support/repeating_strategy.h"
#include "support/temporary_folder.h"

namespace levin::named_batches_test {

struct Weights {
  at::Tensor each;  // (samples)
};

}  // namespace levin::named_batches_test

namespace levin {

template <>
struct BatchTraits<named_batches_test::Weights> {
  using Weights = named_batches_test::Weights;
  static int64_t rows(const Weights& weights) { return weights.each.size(0); }
  static Weights slice(const Weights& weights, int64_t from, int64_t n) { return {weights.each.narrow(0, from, n)}; }
  static Weights concat(const std::vector<Weights>& parts) {
    std::vector<at::Tensor> all;
    for (const Weights& part : parts) all.push_back(part.each);
    return {torch::cat(all)};
  }
  static void tensors(Weights& weights, const TensorVisitor& visit) { visit(weights.each); }
};

}  // namespace levin

namespace levin::named_batches_test {
namespace {

using namespace test;
namespace F = torch::nn::functional;

enum class Form { list, named, rich };

at::Tensor inputs() {
  torch::manual_seed(0);
  return torch::rand({24, 8});
}

// The same samples as a list, with names, or with the target as text, the input as a ragged field too, and a value.
class Samples final : public Dataset {
 public:
  explicit Samples(Form form) : form_(form) {}
  [[nodiscard]] int64_t size() const override { return 22; }
  [[nodiscard]] Batch get(int64_t index) const override {
    const at::Tensor x = x_[index].clone(), y = torch::tensor(index % 3);
    if (form_ == Form::list) return {x, y};
    if (form_ == Form::named) return {{"x", x}, {"y", y}};
    return {{"x", Ragged{x.narrow(0, 0, 4 + index % 5)}},
            {"y", std::to_string(index % 3)},
            {"rest", x},
            {"weights", Weights{torch::ones({1})}}};
  }

 private:
  Form form_;
  at::Tensor x_ = inputs();
};

class Net : public PartedModule {
 public:
  explicit Net(Form form) : form_(form) {}
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>&) const override {
    return std::make_shared<Net>(form_);
  }
  // (batch, 8) and (batch): of the rich form the ragged rows, completed by what they lack.
  std::array<at::Tensor, 2> read(const Batch& batch) {
    if (form_ == Form::list) return batch.unpack<2>();
    if (form_ == Form::named) return batch.unpack("x", "y");
    std::vector<at::Tensor> rows;
    std::vector<int64_t> labels;
    const auto ragged = batch.list("x");
    EXPECT_EQ(std::ssize(ragged), batch.size());
    EXPECT_EQ(batch.value<Weights>("weights").each.size(0), batch.size());
    for (int64_t i = 0; i < batch.size(); ++i) {
      const at::Tensor& begin = ragged[static_cast<size_t>(i)];
      rows.push_back(torch::cat({begin, batch["rest"][i].slice(0, begin.size(0))}));
      labels.push_back(std::stoll(batch.texts("y")[static_cast<size_t>(i)]));
    }
    return {torch::stack(rows), torch::tensor(labels)};
  }
  at::Tensor loss_of(const Batch& batch) {
    const auto [x, y] = read(batch);
    return F::cross_entropy(forward(x), y);
  }
  at::Tensor training_step(const Batch& batch, int64_t) override {
    const at::Tensor loss = loss_of(batch);
    log("loss", loss, {.on_step = true, .on_epoch = true});
    return loss;
  }
  void validation_step(const Batch& batch, int64_t) override { log("val_loss", loss_of(batch)); }
  at::Tensor predict_step(const Batch& batch, int64_t) override { return forward(read(batch)[0]); }

 private:
  Form form_;
};

DataLoader loader(Form form, int64_t workers = 0) {
  return DataLoader(std::make_shared<Samples>(form), {.batch_size = 8, .shuffle = true, .num_workers = workers});
}

using Change = std::function<void(TrainerOptions&)>;

at::Tensor trained(Form form, const Change& change = nullptr) {
  Net module(form);
  seed_everything(7);
  TrainerOptions options = quiet(2, {});
  if (change) change(options);
  Trainer trainer(options);
  trainer.fit(module, loader(form, 1), loader(form));
  EXPECT_TRUE(trainer.callback_metrics().contains("val_loss"));
  return weights(module);
}

void expect_same_bits(const Change& change) {
  const at::Tensor list = trained(Form::list, change);
  EXPECT_TRUE(torch::equal(trained(Form::named, change), list));
  EXPECT_TRUE(torch::equal(trained(Form::rich, change), list));
}

TEST(NamedBatches, TrainAsListsDo) {
  expect_same_bits(nullptr);
}

TEST(NamedBatches, AreAccumulated) {
  expect_same_bits([](TrainerOptions& options) { options.accumulate_grad_batches = 2; });
}

TEST(NamedBatches, AreSplitAmongReplicas) {
  for (const char* strategy : {"dp", "dp_balanced"}) {
    expect_same_bits([&](TrainerOptions& options) {
      options.strategy = strategy;
      options.devices = 3;
    });
  }
}

TEST(NamedBatches, AreSplitIntoMicroBatches) {
  const Change parts = [](TrainerOptions& options) { options.micro_batch_size = 3; };
  expect_same_bits(parts);
  EXPECT_TRUE(torch::allclose(trained(Form::rich, parts), trained(Form::list), 1e-5, 1e-6)) << "one batch of all";
}

TEST(NamedBatches, GoThroughAPipeline) {
  expect_same_bits([](TrainerOptions& options) {
    options.devices = 2;
    options.strategy = std::make_shared<ModelParallel>(
        ModelParallelOptions{.placement = Placement{{"encoder", 0}, {"decoder", 1}}, .pipeline = PipelineOptions{4}});
  });
}

TEST(NamedBatches, AreSharedOutAmongRanks) {
  const auto counted = [](int64_t rank, bool padded) {
    DataLoader own = loader(Form::rich);
    EXPECT_TRUE(own.shard(rank, 3, padded));
    own.start(0);
    int64_t samples = 0;
    for (Batch batch; own.next(batch); samples += batch.size()) {
      EXPECT_EQ(std::ssize(batch.texts("y")), batch.size());
      EXPECT_EQ(std::ssize(batch.list("x")), batch.size());
    }
    return samples;
  };
  EXPECT_EQ(counted(0, true), 8);
  EXPECT_EQ(counted(0, false) + counted(1, false) + counted(2, false), 22);
}

TEST(NamedBatches, AreCopiedToTheDeviceAhead) {
  const auto log = std::make_shared<DeviceLog>();
  const at::Tensor copied =
      trained(Form::rich, [&](TrainerOptions& options) { options.strategy = RepeatingStrategy(log, /*copies=*/true); });
  EXPECT_TRUE(torch::equal(copied, trained(Form::list)));
  EXPECT_GE(log->copies.size(), 2U * 2 * 3);
  LateCopier copier(log);
  DataLoader source = loader(Form::rich);
  BatchStream stream(source, 1);
  stream.copy_ahead(copier);
  stream.start(0);
  Batch batch;
  ASSERT_TRUE(stream.next(batch));
  EXPECT_TRUE(batch.value<Weights>("weights").each.equal(torch::ones({8}))) << "-1 before the copy is there";
}

TEST(NamedBatches, AreConvertedWithTheirValues) {
  Batch seen;
  Net module(Form::rich);
  TrainerOptions options =
      quiet(1, {LambdaCallback({.on_train_batch_start = [&](Trainer&, LightningModule&, const Batch& batch, int64_t) {
              seen = batch;
            }})});
  options.precision = "64-true";
  Trainer(options).fit(module, loader(Form::rich));
  EXPECT_EQ(seen["rest"].scalar_type(), at::kDouble);
  EXPECT_EQ(seen.list("x")[0].scalar_type(), at::kDouble);
  EXPECT_EQ(seen.value<Weights>("weights").each.scalar_type(), at::kDouble);
}

TEST(NamedBatches, WithNamesAreRecorded) {
  CapturedConsole console;
  const auto record = [](TrainerOptions& options) {
    options.record_steps = true;
    options.max_epochs = 4;
  };
  const auto plain = [](TrainerOptions& options) { options.max_epochs = 4; };
  EXPECT_TRUE(torch::equal(trained(Form::named, record), trained(Form::named, plain)));
  EXPECT_EQ(console.text().find("\"y\""), std::string::npos) << console.text();
}

TEST(NamedBatches, WithStringsAreNotRecordedAndReportIt) {
  CapturedConsole console;
  const at::Tensor kept = trained(Form::rich, [](TrainerOptions& options) { options.record_steps = true; });
  EXPECT_TRUE(torch::equal(kept, trained(Form::list)));
  EXPECT_TRUE(holds(console.text(), {"record_steps", "the field \"y\" of the batch holds strings", "on the host"}));
}

TEST(NamedBatches, AreMeasuredAndCutForPlans) {
  DataLoader source = loader(Form::rich);
  source.start(0);
  Batch batch;
  ASSERT_TRUE(source.next(batch));
  int64_t bytes = 8 * (8 + 1) * 4;
  for (const at::Tensor& row : batch.list("x")) bytes += static_cast<int64_t>(row.nbytes());
  EXPECT_EQ(batch_bytes(batch), bytes);
  const Batch first = first_samples(batch, 3);
  EXPECT_EQ(first.size(), 3);
  EXPECT_TRUE(first.list("x")[2].equal(batch.list("x")[2]));
  EXPECT_EQ(first.texts("y").size(), 3U);
}

// ---- callbacks ----------------------------------------------------------------------------------------------------

TEST(NamedBatches, AreMixedByTheirPlaces) {
  const Batch list{torch::rand({4, 2, 3, 3}), torch::arange(4) % 3};
  const Batch named{{"images", list[0]}, {"labels", list[1]}, {"ids", {"a", "b", "c", "d"}}};
  const at::Tensor other = torch::tensor({2, 0, 3, 1});
  const Batch want = MixUp({.num_classes = 3}).mixed(list, 0.75, other);
  const Batch mixed = MixUp({.num_classes = 3}).mixed(named, 0.75, other);
  EXPECT_TRUE(mixed["images"].equal(want[0]) && mixed["labels"].equal(want[1]));
  EXPECT_TRUE(named["images"].equal(list[0])) << "the given batch is left alone";
  EXPECT_EQ(mixed.texts("ids")[3], "d");
}

TEST(NamedBatches, ArePredictedAndWritten) {
  const TemporaryFolder folder;
  Predictions results[2];
  for (const Form form : {Form::list, Form::rich}) {
    Net module(form);
    const std::string path = folder.path() + "/" + (form == Form::list ? "list" : "rich") + ".csv";
    Trainer trainer(quiet(1, {PredictionWriter({.output = path})}));
    DataLoader source(std::make_shared<Samples>(form), {.batch_size = 8});
    results[form == Form::list ? 0 : 1] = trainer.predict(module, source);
  }
  for (size_t k = 0; k < 3; ++k) EXPECT_TRUE(torch::equal(results[0][0][k], results[1][0][k]));
  EXPECT_EQ(read_file(folder.path() + "/rich.csv"), read_file(folder.path() + "/list.csv"));
}

TEST(NamedBatches, ContinueInTheMiddleOfAnEpoch) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/middle.ckpt";
  const at::Tensor whole = trained(Form::rich);
  {
    Net module(Form::rich);
    seed_everything(7);
    const auto save = [&](Trainer& trainer, LightningModule&, const at::Tensor&, const Batch&, int64_t) {
      if (trainer.global_step() == 4) trainer.save_checkpoint(path);  // one batch into the second epoch
    };
    Trainer trainer(quiet(2, {LambdaCallback({.on_train_batch_end = save})}));
    trainer.fit(module, loader(Form::rich, 1), loader(Form::rich));
  }
  Net module(Form::rich);
  seed_everything(7);
  Trainer trainer(quiet(2, {}));
  trainer.fit(module, loader(Form::rich, 1), loader(Form::rich), path);
  EXPECT_EQ(trainer.global_step(), 6);
  EXPECT_TRUE(torch::equal(weights(module), whole));
}

}  // namespace
}  // namespace levin::named_batches_test
