// Mistakes in the first hour with one's own module, and their messages.
#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "callbacks/quiet_trainer.h"
#include "levin/checkpoint/checkpoint_file.h"
#include "levin/data/loading/dataloader.h"
#include "levin/libtorch/version.h"
#include "levin/optim/sgd.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::misuse_test {
namespace {

using namespace test;

TEST(Misuse, ALoaderMayBeMadeInTheCall) {
  TinyModule module;
  Trainer trainer(quiet(1, {}));
  auto data = std::make_shared<TensorDataset>(std::vector<at::Tensor>{torch::rand({12, 4}), torch::rand({12, 1})});
  trainer.fit(module, DataLoader(data, {.batch_size = 4}), DataLoader(data, {.batch_size = 6}));
  EXPECT_EQ(trainer.global_step(), 3);
  DataLoader own(data, {.batch_size = 3});  // owned by the caller
  Trainer another(quiet(1, {}));
  another.fit(module, own);
  EXPECT_EQ(another.global_step(), 4);
  EXPECT_EQ(another.test(module, own).size(), 1U);
  EXPECT_TRUE(has(error_of([&] {
                    another.fit(module, Loaders{tiny_loader(4), tiny_loader(4)});
                  }),
                  "fit: 2 training loaders were given"));
}

// Every order in which two trainers and their module end.
TEST(TwoTrainers, OfOneModuleEndInAnyOrder) {
  auto first = std::make_unique<Trainer>(quiet(1, {}));
  auto second = std::make_unique<Trainer>(quiet(1, {}));
  auto module = std::make_unique<TinyModule>();
  first->fit(*module, tiny_loader(8));
  second->fit(*module, tiny_loader(8));
  EXPECT_EQ(first->module(), module.get()) << "as in Lightning: both refer to it";
  EXPECT_EQ(second->module(), module.get());
  EXPECT_EQ(&module->trainer(), second.get());
  module.reset();
  EXPECT_EQ(first->module(), nullptr);
  EXPECT_EQ(second->module(), nullptr);
  TinyModule another;
  first->fit(another, tiny_loader(8));
  EXPECT_EQ(first->module(), &another);
  second->validate(another, tiny_loader(8));
  second.reset();
  EXPECT_EQ(&another.trainer(), first.get()) << "the last existing trainer that ran it";
  first.reset();
  EXPECT_FALSE(another.has_trainer());
}

TEST(TwoTrainers, LogInTheSecondIsNotLostWhenTheFirstEnds) {
  auto first = std::make_unique<Trainer>(quiet(1, {}));
  Trainer second(quiet(1, {}));
  TinyModule module;
  first->fit(module, tiny_loader(8));
  module.on_training_step = [&](int64_t) { first.reset(); };  // before the step logs
  second.fit(module, tiny_loader(8));
  EXPECT_EQ(second.callback_metrics().count("train_loss"), 1U);
  EXPECT_EQ(&module.trainer(), &second);
}

TEST(TwoTrainers, TheFirstWithAnotherModuleLeavesTheSecondItsOwn) {
  Trainer first(quiet(1, {}));
  Trainer second(quiet(1, {}));
  TinyModule module, other;
  first.fit(module, tiny_loader(8));
  second.fit(module, tiny_loader(8));
  first.fit(other, tiny_loader(8));
  EXPECT_EQ(&module.trainer(), &second);
  EXPECT_EQ(&other.trainer(), &first);
}

TEST(TwoTrainers, TheFirstSavesAfterTheSecondHasTested) {
  const TemporaryFolder folder;
  TinyModule module;
  Trainer first(quiet(1, {}));
  first.fit(module, tiny_loader(8));
  (void)Trainer(quiet(1, {})).test(module, tiny_loader(8));
  EXPECT_EQ(&module.trainer(), &first);
  first.save_checkpoint(folder.path() + "/a.ckpt");
  const State saved = load_checkpoint(folder.path() + "/a.ckpt");
  EXPECT_TRUE(saved.tensor("model.layer.weight").equal(module.layer->weight));
}

TEST(Misuse, WarnsOfLogsOfAModuleWithoutATrainer) {
  struct Inner : LightningModule {
    torch::Tensor forward(const torch::Tensor& x) override {
      log("inner_mean", x.mean());
      return x;
    }
  };
  struct Outer : TinyModule {
    torch::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
      (void)inner->forward(batch[0]);
      return TinyModule::training_step(batch, batch_idx);
    }
    std::shared_ptr<Inner> inner{register_module("inner", std::make_shared<Inner>())};
  } module;
  const CapturedConsole console;
  Trainer trainer(quiet(1, {}));
  trainer.fit(module, tiny_loader(4));
  EXPECT_TRUE(holds(console.text(), {"log(\"inner_mean\") of ",
                                     "Inner: no Trainer is running this module, so its values "
                                     "are dropped. Log them in the module that is given to fit"}))
      << console.text();
  EXPECT_EQ(trainer.callback_metrics().count("train_loss"), 1U);
}

// Its trainer still exists, and runs nothing.
TEST(Misuse, WarnsOfLogsOfAModuleThatWasFittedAlone) {
  struct Outer : TinyModule {
    explicit Outer(std::shared_ptr<TinyModule> fitted) : inner(register_module("inner", std::move(fitted))) {}
    at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
      return inner->training_step(batch, batch_idx);
    }
    std::shared_ptr<TinyModule> inner;
  };
  const auto inner = std::make_shared<TinyModule>();
  Trainer first(quiet(1, {}));
  first.fit(*inner, tiny_loader(4));
  const double logged_alone = first.callback_metrics().at("train_loss");
  Outer outer(inner);
  const CapturedConsole console;
  Trainer second(quiet(1, {}));
  second.fit(outer, tiny_loader(4));
  EXPECT_TRUE(holds(console.text(), {"log(\"train_loss\") of ", "TinyModule: no Trainer is running this module"}))
      << console.text();
  EXPECT_EQ(second.callback_metrics().count("train_loss"), 0U);
  EXPECT_EQ(first.callback_metrics().at("train_loss"), logged_alone);
}

TEST(Misuse, AWindowOfNoBatchesIsRefused) {
  for (const int64_t batches : {0, -3}) {
    TinyModule module;
    module.on_training_step = [&](int64_t) { module.trainer().set_accumulate_grad_batches(batches); };
    EXPECT_TRUE(holds(error_of([&] { Trainer(quiet(1, {})).fit(module, tiny_loader(8)); }),
                      {"set_accumulate_grad_batches: must be >= 1, got " + std::to_string(batches)}));
  }
}

TEST(Misuse, WarnsOnceOfALossOverTwoShapes) {
  struct Broadcasting : TinyModule {
    at::Tensor training_step(const Batch& batch, int64_t) override {
      return torch::mse_loss(layer->forward(batch[0]), batch[1].squeeze(1));  // (4, 1) and (4)
    }
  } module;
  const CapturedConsole console;
  Trainer(quiet(1, {})).fit(module, tiny_loader(16));
  ASSERT_EQ(console.lines().size(), 1U) << console.text();
  EXPECT_TRUE(holds(console.text(), {"training_step: mse_loss compares a tensor (4, 1) with one (4)", "squeeze(1)"}));
}

TEST(Misuse, EachWarningOfLibTorchIsShownOnceInARun) {
  struct Warning : TinyModule {
    at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
      if (batch_idx == 3) TORCH_WARN("another warning");
      return torch::nn::functional::mse_loss(layer->forward(batch[0]), batch[1].squeeze(1));  // warns in each call
    }
    void validation_step(const Batch&, int64_t) override { TORCH_WARN("a warning of validation"); }
  } module;
  struct Counts : c10::WarningHandler {
    void process(const c10::Warning& warning) override { messages.push_back(warning.msg()); }
    std::vector<std::string> messages;
  } counts;
  const CapturedConsole console;
  const c10::WarningUtils::WarningHandlerGuard guard(&counts);
  Trainer trainer(quiet(2, {}));
  trainer.fit(module, tiny_loader(16), tiny_loader(16));
  ASSERT_EQ(counts.messages.size(), 3U);
  EXPECT_EQ(counts.messages[0], "a warning of validation");  // of the sanity check
  EXPECT_TRUE(has(counts.messages[1], "is different to the input size")) << counts.messages[1];
  EXPECT_EQ(counts.messages[2], "another warning");
  EXPECT_EQ(c10::WarningUtils::get_warning_handler(), &counts) << "as before the fit";
}

std::string error_of_step(const std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)>& loss) {
  struct Step : TinyModule {
    at::Tensor training_step(const Batch& batch, int64_t) override {
      return loss(layer->forward(batch[0]).repeat({1, 3}), batch[1]);
    }
    std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> loss;
  } module;
  module.loss = loss;
  return error_of([&] { Trainer(quiet(1, {})).fit(module, tiny_loader(16)); });
}

TEST(Misuse, ErrorsOfLibTorchAboutTypesSayWhatToDo) {
  const char* const to_long = "convert them before the call, e.g. batch[1].to(torch::kLong).";
  const char* const to_float = "e.g. batch[1].to(torch::kFloat)";
  const char* const to_bool = "mask.to(torch::kBool)";
  const auto wanted_long = [](const std::string& error, const std::string& found) {
    return LEVIN_TORCH_AT_LEAST(2, 12) && has(error, "target dtype")
               ? "expected target dtype to be Long or Byte, but got " + found
               : "expected scalar type Long but found " + found;
  };
  std::string error = error_of_step([](const at::Tensor& output, const at::Tensor& target) {
    return torch::cross_entropy_loss(output, target.squeeze(1));
  });
  EXPECT_TRUE(holds(error, {"training_step, epoch 0, batch 0, global step 0: ", wanted_long(error, "Float"), to_long,
                            "target_is_class"}));
  error = error_of_step([](const at::Tensor& output, const at::Tensor& target) {
    return torch::nll_loss(output.log_softmax(1), target.squeeze(1).to(torch::kInt));
  });
  EXPECT_TRUE(holds(error, {wanted_long(error, "Int"), to_long}));
  EXPECT_TRUE(holds(error_of_step([](const at::Tensor& output, const at::Tensor& target) {
                      return torch::embedding(output, target).sum();
                    }),
                    {"scalar types: Long, Int", to_long}));
  EXPECT_TRUE(holds(
      error_of_step([](const at::Tensor& output, const at::Tensor& target) { return output.gather(1, target).sum(); }),
      {"for index", to_long}));
  EXPECT_TRUE(holds(error_of_step([](const at::Tensor& output, const at::Tensor& target) {
                      return output.sum() + torch::one_hot(target).sum();
                    }),
                    {"LongTensor", to_long}));
  EXPECT_TRUE(holds(error_of_step([](const at::Tensor& output, const at::Tensor& target) {
                      return output.sum() + output.index({target}).sum();
                    }),
                    {"tensors used as indices", to_long}));
  EXPECT_TRUE(holds(error_of_step([](const at::Tensor& output, const at::Tensor&) {
                      return torch::mm(output.t(), output.detach().to(torch::kDouble)).sum();
                    }),
                    {"same dtype", to_float}));
  const auto of_longs = [](auto loss) {
    return error_of_step([loss](const at::Tensor& output, const at::Tensor& target) {
      return loss(output, target.expand_as(output).to(torch::kLong));
    });
  };
  EXPECT_TRUE(holds(of_longs([](const at::Tensor& output, const at::Tensor& target) {
                      return torch::binary_cross_entropy_with_logits(output, target);
                    }),
                    {"result type Float can't be cast to the desired output type Long", to_float}));
  EXPECT_TRUE(holds(of_longs([](const at::Tensor& output, const at::Tensor& target) {
                      return torch::binary_cross_entropy(output.sigmoid(), target);
                    }),
                    {"Found dtype Long but expected Float", to_float}));
  const std::string mse =
      of_longs([](const at::Tensor& output, const at::Tensor& target) { return torch::mse_loss(output, target); });
  if (!LEVIN_TORCH_AT_LEAST(2, 12) || !mse.empty()) {  // a newer LibTorch converts the target
    EXPECT_TRUE(holds(mse, {"Found dtype Long but expected Float", to_float}));
  }
  EXPECT_TRUE(holds(of_longs([](const at::Tensor& output, const at::Tensor& target) {
                      return torch::cross_entropy_loss(output, target);
                    }),
                    {"Expected floating point type for target with class probabilities", to_float}));
  EXPECT_TRUE(holds(of_longs([](const at::Tensor& output, const at::Tensor& target) {
                      return torch::kl_div(output.log_softmax(1), target);
                    }),
                    {"Integral inputs not supported", to_float}));
  EXPECT_TRUE(
      holds(of_longs([](const at::Tensor& output, const at::Tensor& target) { return output.sum() * target.mean(); }),
            {"could not infer output dtype", to_float}));
  EXPECT_TRUE(holds(of_longs([](const at::Tensor& output, const at::Tensor& target) {
                      return output.sum() + target.softmax(1).sum();
                    }),
                    {"not implemented for 'Long'", to_float}));
  EXPECT_TRUE(holds(of_longs([](const at::Tensor& output, const at::Tensor& target) {
                      return torch::layer_norm(target, {3}, output.select(0, 0)).sum();
                    }),
                    {"must share same datatype", to_float}));
  EXPECT_TRUE(holds(of_longs([](const at::Tensor& output, const at::Tensor& target) {
                      return torch::bmm(output.unsqueeze(0), target.t().to(torch::kDouble).unsqueeze(0)).sum();
                    }),
                    {"expected scalar type Float but found Double", to_float}));
  EXPECT_TRUE(holds(
      of_longs([](const at::Tensor& output, const at::Tensor& target) { return output.masked_select(target).sum(); }),
      {"expected BoolTensor for mask", to_bool}));
  EXPECT_FALSE(has(error_of_step([](const at::Tensor& output, const at::Tensor&) {
                     return output.view({7, 7}).sum();
                   }),
                   "torch::k"));
}

TEST(Misuse, ReportsWhatAModuleWithoutParametersLacks) {
  struct Forgetful : LightningModule {
    at::Tensor training_step(const Batch& batch, int64_t) override { return layer->forward(batch[0]).mean(); }
    OptimizerConfig configure_optimizers() override { return SGD(parameters(), {.lr = 0.1}); }
    torch::nn::Linear layer{4, 1};
  } module;
  EXPECT_TRUE(holds(error_of([&] { Trainer(quiet(1, {})).fit(module, tiny_loader(8)); }),
                    {"SGD: parameter group 0 has no tensors", "register_module(\"name\", layer)"}));
}

TEST(Misuse, WarnsOfManualOptimizationThatNeverSteps) {
  struct Idle : TinyModule {
    Idle() { set_automatic_optimization(false); }
    at::Tensor training_step(const Batch& batch, int64_t) override {
      manual_backward(layer->forward(batch[0]).mean());
      return {};
    }
  } module;
  const CapturedConsole console;
  Trainer(quiet(2, {})).fit(module, tiny_loader(8));
  EXPECT_TRUE(console.has("manual optimization: no optimizer was stepped in an entire epoch")) << console.text();
}

TEST(Misuse, WarnsOfAnEpochWithoutALoss) {
  struct Idle : TinyModule {
    at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
      const at::Tensor loss = TinyModule::training_step(batch, batch_idx);
      return batch_idx == last ? loss : at::Tensor();
    }
    int64_t last = -1;
  } module;
  const CapturedConsole console;
  Trainer(quiet(1, {})).fit(module, tiny_loader(8));
  EXPECT_TRUE(console.has("no batch of the epoch had a loss")) << console.text();
  const CapturedConsole other;
  module.last = 1;
  Trainer(quiet(1, {})).fit(module, tiny_loader(8));
  EXPECT_EQ(other.text(), "");
}

TEST(Misuse, ReportsWhichOptionsChangeNothing) {
  const CapturedConsole console;
  TrainerOptions options = quiet(1, {});
  options.accelerator = "cpu";
  options.max_restarts = 2;
  options.sync_batchnorm = true;
  options.gradient_clip_algorithm = ClipAlgorithm::value;
  options.benchmark = true;
  const Trainer trainer(options);
  EXPECT_TRUE(holds(console.text(), {"TrainerOptions.max_restarts changes nothing: a single process",
                                     "TrainerOptions.sync_batchnorm changes nothing: there is one rank",
                                     "TrainerOptions.gradient_clip_algorithm changes nothing: nothing is clipped",
                                     "TrainerOptions.benchmark changes nothing"}));
}

TEST(Misuse, AMetricWithTheNameOfACounterIsRefused) {
  for (const std::string name : {"step", "epoch"}) {
    const auto error = [&](const std::function<void(TinyModule&)>& log) {
      struct Logging : TinyModule {
        void on_train_batch_end(const at::Tensor&, const Batch&, int64_t) override { log_it(*this); }
        std::function<void(TinyModule&)> log_it;
      } module;
      module.log_it = log;
      return error_of([&] { Trainer(quiet(1, {})).fit(module, tiny_loader(8)); });
    };
    const std::string what = "(\"" + name + "\")";
    const std::string why = name + " is the name of the counter in the rows of the loggers";
    const std::string logged = error([&](TinyModule& m) { m.log(name, 1.0); });
    EXPECT_TRUE(has(logged, "log" + what + " in on_train_batch_end") && has(logged, why)) << logged;
    const std::string row = error([&](TinyModule& m) { m.trainer().log_now({{name, 1.0}}, 0); });
    EXPECT_TRUE(has(row, "log_now" + what) && has(row, why)) << row;
    const std::string system = error([&](TinyModule& m) { m.trainer().log_system({{name, 1.0}}, 0); });
    EXPECT_TRUE(has(system, "log_system" + what) && has(system, why)) << system;
  }
}

TEST(Misuse, TellsItsRankAndPrints) {
  const CapturedConsole console;
  const Trainer trainer(quiet(1, {}));
  EXPECT_TRUE(trainer.is_global_zero());
  EXPECT_EQ(trainer.local_rank(), 0);
  trainer.print("hello");
  EXPECT_EQ(console.text(), "hello\n");
}

}  // namespace
}  // namespace levin::misuse_test
