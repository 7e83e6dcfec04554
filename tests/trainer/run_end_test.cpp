// How a run fails: which hooks are called, what is closed, what the caller gets; and entry points that are called while
// another one runs.
#include "levin/trainer/loops/run_end.h"

#include <gtest/gtest.h>

#include "levin/callbacks/lambda_callback.h"
#include "levin/cli/run_cli.h"
#include "levin/core/options/error.h"
#include "levin/core/options/registry.h"
#include "levin/data/loading/dataloader.h"
#include "levin/data/sets/csv.h"
#include "levin/data/sets/npy_data.h"
#include "levin/libtorch/version.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::run_end_test {
namespace {

using test::CapturedConsole;
using test::error_of;
using test::tiny_loader;
using test::TinyModule;

TrainerOptions quiet(Callbacks callbacks = {}) {
  TrainerOptions options;
  options.max_epochs = 1;
  options.logger = false;
  options.enable_checkpointing = false;
  options.enable_progress_bar = false;
  options.enable_model_summary = false;
  options.callbacks = std::move(callbacks);
  return options;
}

/// Records its calls, and throws where requested.
struct Witness : Callback {
  Witness(std::string who, std::vector<std::string>& seen) : name(std::move(who)), calls(seen) {}
  void on_exception(Trainer&, LightningModule&, const std::exception& error) override {
    note("on_exception", error.what());
  }
  void teardown(Trainer&, LightningModule&, Stage) override { note("teardown", ""); }
  void note(const std::string& hook, const std::string& text) {
    calls.push_back(name + "." + hook + (text.empty() ? "" : " " + text));
    if (fails_in == hook) throw std::runtime_error("broken " + hook);
    if (throws_a_number_in == hook) throw 7;
  }
  std::string name;
  std::vector<std::string>& calls;
  std::string fails_in = "";
  std::string throws_a_number_in = "";
};

struct FailingModule : TinyModule {
  explicit FailingModule(std::vector<std::string>& seen) : calls(seen) {
    on_training_step = [](int64_t batch) {
      if (batch == 1) throw std::out_of_range("the first error");
    };
  }
  void on_exception(const std::exception&) override { calls.emplace_back("module.on_exception"); }
  void teardown(Stage) override { calls.emplace_back("module.teardown"); }
  std::vector<std::string>& calls;
};

TEST(RunEnd, AHookThatFailsOnTheWayOutDoesNotReplaceTheFirstError) {
  std::vector<std::string> calls;
  auto one = std::make_shared<Witness>("one", calls), other = std::make_shared<Witness>("other", calls);
  one->fails_in = "on_exception";
  other->fails_in = "teardown";
  FailingModule module(calls);
  const CapturedConsole console;
  Trainer trainer(quiet({one, other}));
  EXPECT_THROW(trainer.fit(module, tiny_loader(24)), std::out_of_range);
  const std::string error = "training_step, epoch 0, batch 1, global step 1: the first error";
  EXPECT_EQ(calls,
            (std::vector<std::string>{"one.on_exception " + error, "other.on_exception " + error, "module.on_exception",
                                      "one.teardown", "other.teardown", "module.teardown"}));
  EXPECT_TRUE(
      console.has("warning: on_exception of Witness failed while the run was ending with an error: broken "
                  "on_exception. The run ends with its first error."))
      << console.text();
  EXPECT_TRUE(
      console.has("warning: teardown of Witness failed while the run was ending with an error: broken teardown"))
      << console.text();
  module.on_training_step = nullptr;
  one->fails_in = other->fails_in = "";
  trainer.fit(module, tiny_loader(24));  // the trainer can be used again
  EXPECT_EQ(trainer.current_epoch(), 1);
}

TEST(RunEnd, ATeardownThatFailsAfterAGoodRunIsTheErrorAndIsNotCalledAgain) {
  std::vector<std::string> calls;
  auto one = std::make_shared<Witness>("one", calls), other = std::make_shared<Witness>("other", calls);
  one->fails_in = "teardown";
  FailingModule module(calls);
  module.on_training_step = nullptr;
  const std::string error = "teardown, epoch 1, batch 0, global step 1: broken teardown";
  EXPECT_EQ(error_of([&] { Trainer(quiet({one, other})).fit(module, tiny_loader(4)); }), error);
  EXPECT_EQ(calls, (std::vector<std::string>{"one.teardown", "one.on_exception " + error, "other.on_exception " + error,
                                             "module.on_exception", "other.teardown", "module.teardown"}));
}

TEST(RunEnd, AMetricThatAMapDoesNotHoldIsAskedForWithNamesOfThoseThereAre) {
  TinyModule module;
  const auto asks = LambdaCallback({.on_train_epoch_end = [](Trainer& trainer, LightningModule&) {
    (void)trainer.callback_metrics().at("val_acc");
  }});
  const std::string error =
      error_of([&] { Trainer(quiet({std::make_shared<LambdaCallback>(asks)})).fit(module, tiny_loader(8)); });
  for (const char* part : {"on_train_epoch_end, epoch 0, batch 1, global step 2: map::at: a map was asked for a key",
                           "Metrics so far: train_loss."}) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
  }
}

TEST(RunEnd, AnErrorOfLibTorchInAStepReportsWhatTheBatchWas) {
  struct Narrow : TinyModule {
    at::Tensor training_step(const Batch& batch, int64_t) override { return forward(batch[0].slice(1, 0, 3)).mean(); }
    void validation_step(const Batch& batch, int64_t) override { (void)forward(batch["x"].slice(1, 0, 3)); }
  } module;
  std::string error = error_of([&] { Trainer(quiet({})).fit(module, tiny_loader(8)); });
  const std::string function = LEVIN_TORCH_AT_LEAST(2, 12) && test::has(error, "addmm") ? "addmm: " : "";
  EXPECT_EQ(error, "training_step, epoch 0, batch 0, global step 0: " + function +
                       "mat1 and mat2 shapes cannot be multiplied (4x3 and 4x1) "
                       "(the batch: (4, 4) Float, (4, 1) Float)");
  const auto named = std::make_shared<TensorDataset>(
      std::vector<at::Tensor>{torch::ones({6, 4}), torch::ones({6}, torch::kLong)}, std::vector<std::string>{"x", "y"});
  error = error_of([&] { Trainer(quiet({})).validate(module, DataLoader(named, {.batch_size = 6})); });
  EXPECT_TRUE(error.ends_with("(the batch: x (6, 4) Float, y (6) Long)")) << error;
}

TEST(RunEnd, WhatIsNotAStdExceptionIsReportedAndRethrownUnchanged) {
  std::vector<std::string> calls;
  auto one = std::make_shared<Witness>("one", calls);
  one->throws_a_number_in = "teardown";
  FailingModule module(calls);
  module.on_training_step = [](int64_t batch) {
    if (batch == 1) throw 42;
  };
  const CapturedConsole console;
  Trainer trainer(quiet({one}));
  int thrown = 0;
  try {
    trainer.fit(module, tiny_loader(24));
  } catch (const int number) {
    thrown = number;
  }
  EXPECT_EQ(thrown, 42);
  const std::string described =
      "training_step, epoch 0, batch 1, global step 1: an exception of type int, which is not a std::exception. Throw "
      "levin::Error, or another std::exception, to say what went wrong.";
  EXPECT_EQ(calls, (std::vector<std::string>{"one.on_exception " + described, "module.on_exception", "one.teardown",
                                             "module.teardown"}));
  EXPECT_TRUE(console.has("warning: " + described)) << console.text();
  EXPECT_TRUE(
      console.has("teardown of Witness failed while the run was ending with an error: an exception of type int"))
      << console.text();
  module.on_training_step = nullptr;
  one->throws_a_number_in = "";
  trainer.fit(module, tiny_loader(24));
  EXPECT_EQ(trainer.current_epoch(), 1);
}

struct ThrowsANumber : TinyModule {
  ThrowsANumber() {
    on_training_step = [](int64_t) { throw 42; };
  }
  std::shared_ptr<Loader> train_dataloader() override { return tiny_loader(4); }
};

TEST(RunEnd, TheToolReportsWhatWasThrownAndEndsWithStatus1) {
  Registry<LightningModule>::instance().add<ThrowsANumber>("RunEndThrowsANumber", "throws 42");
  std::vector<std::string> arguments = {"levin",
                                        "fit",
                                        "--model=RunEndThrowsANumber",
                                        "--trainer.logger=false",
                                        "--trainer.enable_checkpointing=false",
                                        "--trainer.enable_progress_bar=false"};
  std::vector<char*> pointers;
  for (auto& argument : arguments) pointers.push_back(argument.data());
  const CapturedConsole console;
  EXPECT_EQ(run_cli(static_cast<int>(pointers.size()), pointers.data()), 1);
  EXPECT_TRUE(console.has("error: the run ended with an exception of type int, which is not a std::exception."))
      << console.text();
}

TEST(RunEnd, ANumberThrownByADataSetOnAWorkersThreadArrives) {
  struct Broken : Dataset {
    [[nodiscard]] int64_t size() const override { return 8; }
    [[nodiscard]] Batch get(int64_t) const override { throw 42; }
  };
  for (const int64_t workers : {0, 2}) {
    std::vector<std::string> calls;
    FailingModule module(calls);
    auto loader = std::make_shared<DataLoader>(std::make_shared<Broken>(),
                                               DataLoaderOptions{.batch_size = 2, .num_workers = workers});
    EXPECT_ANY_THROW(Trainer(quiet()).fit(module, loader)) << workers;
    EXPECT_EQ(calls, (std::vector<std::string>{"module.on_exception", "module.teardown"})) << workers;
  }
}

// ---- an entry point inside another ----------------------------------------------------------------------------------

TEST(RunEnd, AnEntryPointCalledInAHookIsAnErrorThatNamesTheHook) {
  struct Nested : Callback {
    void on_train_batch_end(Trainer& trainer, LightningModule& module, const at::Tensor&, const Batch&,
                            int64_t) override {
      trainer.validate(module, tiny_loader(4));
    }
  };
  std::vector<std::string> calls;
  FailingModule module(calls);
  module.on_training_step = nullptr;
  Trainer trainer(quiet({std::make_shared<Nested>()}));
  EXPECT_EQ(error_of([&] { trainer.fit(module, tiny_loader(8)); }),
            "on_train_batch_end, epoch 0, batch 0, global step 1: Trainer::validate was called in on_train_batch_end "
            "of Nested, while the same trainer runs fit. Call it after "
            "that has returned, or use another Trainer with another module.");
  EXPECT_EQ(calls, (std::vector<std::string>{"module.on_exception", "module.teardown"}));
  EXPECT_EQ(trainer.validate(module, tiny_loader(4)).size(), 1u);  // outside of a hook, with the same trainer
}

TEST(RunEnd, TrainingContinuesAfterAHookThatCatchesTheError) {
  TinyModule module, other;
  std::vector<std::string> errors;
  Trainer* trainer = nullptr;
  module.on_training_step = [&](int64_t) {
    errors = {error_of([&] { trainer->fit(other, tiny_loader(4)); }),
              error_of([&] { (void)trainer->predict(module, tiny_loader(4)); })};
  };
  Trainer own(quiet());
  trainer = &own;
  own.fit(module, tiny_loader(24));
  EXPECT_EQ(own.global_step(), 6);
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_NE(errors[0].find("Trainer::fit was called in training_step of TinyModule"), std::string::npos) << errors[0];
  EXPECT_NE(errors[1].find("Trainer::predict was called in training_step"), std::string::npos) << errors[1];
  EXPECT_TRUE(module.has_trainer());
  EXPECT_FALSE(other.has_trainer());
}

TEST(RunEnd, EveryHookRefusesIt) {
  TinyModule module;
  std::vector<std::string> errors;
  const auto try_it = [&](Trainer& trainer) {
    errors.push_back(error_of([&] { trainer.test(module, tiny_loader(4)); }));
  };
  LambdaCallback tries({.setup = [&](Trainer& t, LightningModule&, Stage) { try_it(t); },
                        .teardown = [&](Trainer& t, LightningModule&, Stage) { try_it(t); },
                        .on_fit_start = [&](Trainer& t, LightningModule&) { try_it(t); },
                        .on_validation_start = [&](Trainer& t, LightningModule&) { try_it(t); }});
  Trainer trainer(quiet(tries));
  trainer.fit(module, tiny_loader(8), tiny_loader(4));
  trainer.validate(module, tiny_loader(4));
  ASSERT_GE(errors.size(), 7u);
  for (const auto& error : errors) EXPECT_NE(error.find("was called in "), std::string::npos) << error;
  EXPECT_NE(errors.front().find("setup of LambdaCallback, while the same trainer runs fit"), std::string::npos);
  EXPECT_NE(errors.back().find("teardown of LambdaCallback, while the same trainer runs validate"), std::string::npos);
}

TEST(RunEnd, AnotherTrainerMayRunInAHookButNotWithTheSameModule) {
  TinyModule module, other;
  std::string error;
  int64_t steps = 0;
  module.on_training_step = [&](int64_t) {
    Trainer second(quiet());
    error = error_of([&] { second.fit(module, tiny_loader(4)); });
    second.fit(other, tiny_loader(8));
    steps = second.global_step();
  };
  Trainer trainer(quiet());
  trainer.fit(module, tiny_loader(4));
  EXPECT_EQ(error,
            "Trainer::fit was called in training_step of TinyModule, for a module that another trainer runs fit with. "
            "Call it after that has returned, or give it a module of its own.");
  EXPECT_EQ(steps, 2);
  EXPECT_EQ(trainer.global_step(), 1);
}

TEST(RunEnd, ErrorsOfUserCodeSayWhereTheyWereThrownAndKeepTheirType) {
  struct Throwing : TinyModule {
    void validation_step(const Batch&, int64_t batch_idx) override {
      if (batch_idx == 1 && !trainer().sanity_checking()) throw std::out_of_range("no such word");
    }
    void test_step(const Batch&, int64_t batch_idx) override {
      if (batch_idx == 2) throw Error("no such word");
    }
  } module;
  TrainerOptions options = quiet({});
  options.num_sanity_val_steps = 2;
  EXPECT_EQ(error_of<std::out_of_range>([&] { Trainer(options).fit(module, tiny_loader(8), tiny_loader(16)); }),
            "validation_step, epoch 0, batch 1, dataloader 0, global step 2: no such word");
  EXPECT_EQ(error_of<Error>([&] { Trainer(options).test(module, tiny_loader(16)); }),
            "test_step, batch 2, dataloader 0: no such word");
  module.on_training_step = [](int64_t) { throw std::runtime_error("broken"); };
  EXPECT_EQ(error_of<std::runtime_error>([&] { Trainer(options).fit(module, tiny_loader(8)); }),
            "training_step, epoch 0, batch 0, global step 0: broken");
}

TEST(RunEnd, AnExceptionOfAUserDefinedTypeIsRethrownAndItsLocationReported) {
  struct OutOfWords : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  TinyModule module;
  module.on_training_step = [](int64_t batch) {
    if (batch == 1) throw OutOfWords("no more");
  };
  const CapturedConsole console;
  EXPECT_EQ(error_of<OutOfWords>([&] { Trainer(quiet({})).fit(module, tiny_loader(8)); }), "no more");
  EXPECT_TRUE(console.has("the run ends in training_step, epoch 0, batch 1, global step 1: no more")) << console.text();
}

std::string int_array(int64_t rows) {
  std::string header = "{'descr': '<i4', 'fortran_order': False, 'shape': (" + std::to_string(rows) + ", 4)}\n";
  std::string bytes("\x93NUMPY\1\0", 8);
  bytes += static_cast<char>(header.size());
  bytes += '\0';
  return bytes + header + std::string(static_cast<size_t>(rows) * 16, '\1');
}

// LibTorch's own error names neither.
TEST(RunEnd, AnErrorAboutTypesNamesTheFileAndTheRemedy) {
  const test::TemporaryFolder folder;
  TinyModule module;
  NpyDataOptions options{.inputs = folder.write("x.npy", int_array(3))};
  const auto error = [&] {
    NpyData data(options);
    return error_of([&] { (void)Trainer(quiet()).predict(module, data); });
  };
  options.test_inputs = options.inputs;
  EXPECT_TRUE(test::holds(error(), {"predict_step", "same dtype", "x.npy holds int32 and is read as int32",
                                    "set inputs_dtype or targets_dtype of the data: float32"}));
  options.inputs_dtype = ArrayDtype::float32;
  EXPECT_EQ(error(), "");
}

TEST(RunEnd, ABatchThatIsTooSmallForANormIsAnErrorWithTheRemedy) {
  struct Normed : TinyModule {
    at::Tensor training_step(const Batch& batch, int64_t) override { return norm->forward(batch[0]).sum(); }
    torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(4))};
  } module;
  EXPECT_TRUE(
      test::holds(error_of([&] { Trainer(quiet()).fit(module, test::tiny_loader(9, 4)); }),
                  {"Expected more than 1 value per channel", "Leave out an epoch's last batch", "drop_last: true"}));
}

TEST(RunEnd, DataAreReadInTheTypeOfTheRun) {
  const test::TemporaryFolder folder;
  struct Seeing : TinyModule {
    at::Tensor predict_step(const Batch& batch, int64_t) override {
      seen = batch[0].item<double>();
      return batch[0];
    }
    double seen = 0;
  } module;
  CsvDataOptions options{.path = folder.write("a.csv", "x\n0.1\n")};
  options.test_path = options.path;
  CsvData data(options);
  TrainerOptions in_double = quiet();
  in_double.precision = "64-true";
  (void)Trainer(in_double).predict(module, data);
  EXPECT_EQ(module.seen, 0.1);
  (void)Trainer(quiet()).predict(module, data);
  EXPECT_EQ(module.seen, static_cast<double>(0.1F));
}

}  // namespace
}  // namespace levin::run_end_test
