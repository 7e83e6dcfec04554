// Every class that a run file may name: its options have documents, and its defaults read back to themselves.
#include <gtest/gtest.h>

#include "levin/core/options/registry.h"
#include "levin/core/process/parts.h"
#include "levin/data/data_module.h"
#include "levin/loggers/logger.h"
#include "levin/optim/lr_scheduler.h"
#include "levin/optim/optimizer.h"
#include "levin/precision/precision.h"
#include "levin/profilers/profiler.h"
#include "levin/strategies/strategy.h"
#include "levin/trainer/callback.h"
#include "levin/trainer/lightning_module.h"
#include "support/captured_console.h"
#include "support/error_text.h"

namespace levin::builtins_test {
namespace {

std::string part_of(const std::string& kind, const std::string& name) {
  for (const PartClass& each : part_classes()) {
    if (kind == each.kind && name == each.name) return each.part;
  }
  return "core";
}

template <class Interface>
void check_all(const std::vector<std::string>& expected) {
  add_builtins();
  const auto& registry = Registry<Interface>::instance();
  EXPECT_EQ(registry.names(), expected);
  for (const auto& entry : registry.entries()) {
    EXPECT_FALSE(entry.doc.empty()) << entry.name;
    EXPECT_NE(entry.file.find("/builtins/" + part_of(Interface::registry_name(), entry.name) + ".cpp"),
              std::string::npos)
        << entry.name;
    for (const auto& option : entry.describe()) {
      EXPECT_FALSE(option.doc.empty()) << entry.name << "." << option.name;
      EXPECT_FALSE(option.type.empty()) << entry.name << "." << option.name;
    }
    Problems required;  // options without a usable default (a monitor, max_lr) are the only ones that may be missed
    const ConfigNode once = entry.resolve(ConfigNode::map(), "x", required);
    if (!required.empty()) continue;
    Problems none;
    EXPECT_TRUE(entry.resolve(once, "x", none).same_as(once)) << entry.name;
    EXPECT_TRUE(none.empty()) << entry.name << ": " << (none.empty() ? "" : none.lines()[0]);
  }
}

TEST(Builtins, NameEveryCallback) {
  check_all<Callback>({"BackboneFinetuning",
                       "BatchSizeFinder",
                       "CutMix",
                       "DeviceStatsMonitor",
                       "EarlyStopping",
                       "EMAWeightAveraging",
                       "GradientAccumulationScheduler",
                       "GradientCentralization",
                       "LearningRateFinder",
                       "LearningRateMonitor",
                       "LoRA",
                       "MixUp",
                       "ModelCheckpoint",
                       "ModelSummary",
                       "OnExceptionCheckpoint",
                       "PredictionWriter",
                       "ProgressBar",
                       "SpikeDetection",
                       "StochasticWeightAveraging",
                       "ThroughputMonitor",
                       "Timer",
                       "WeightAveraging"});
}

TEST(Builtins, NameEveryOptimizer) {
  check_all<Optimizer>({"Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LAMB", "LARS", "LBFGS",
                        "Lookahead", "Muon", "NAdam", "RAdam", "RMSprop", "SAM", "ScheduleFreeAdamW", "SGD"});
}

TEST(Builtins, NameEveryScheduler) {
  check_all<LRScheduler>({"ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts",
                          "CosineWithWarmup", "CyclicLR", "ExponentialLR", "LinearLR", "MultiStepLR", "OneCycleLR",
                          "PolynomialLR", "ReduceLROnPlateau", "SWALR", "SequentialLR", "StepLR"});
}

TEST(Builtins, NameEveryOtherPart) {
  check_all<DataModule>({"CsvData", "FashionMnist", "Hdf5Data", "ImageFolderData", "Mnist", "NpyData", "ParquetData",
                         "StreamData", "TableCsv", "TextCsv", "TextFile", "TokenFileData"});
  check_all<Logger>(
      {"CSVLogger", "JSONLinesLogger", "MLFlowLogger", "PrometheusLogger", "SQLiteLogger", "TensorBoardLogger"});
  check_all<Precision>({"32-true", "64-true", "bf16-true", "16-true", "bf16-mixed", "16-mixed", "MixedPrecision", "32",
                        "64", "bf16", "16"});
  check_all<Profiler>({"nvtx", "simple", "trace"});
  check_all<Strategy>({"ddp", "dp", "dp_balanced", "fsdp", "ModelParallel", "single_device"});
}

TEST(Builtins, ATakenNameReportsWhereBothAre) {
  add_builtins();
  struct Empty final : Callback {};
  try {
    Registry<Callback>::instance().add<Empty>("Timer", "another");
    FAIL() << "two classes of one name";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("builtins/core.cpp"), std::string::npos) << text;
    EXPECT_NE(text.find("builtins_test.cpp"), std::string::npos) << text;
    EXPECT_NE(text.find("\"Timer\""), std::string::npos) << text;
  }
}

TEST(Builtins, ATakenNameOfAnotherPartReportsBothToo) {
  add_builtins();
  struct Empty final : Callback {};
  const std::string text = test::error_of<Error>([] { Registry<Callback>::instance().add<Empty>("LoRA", "another"); });
  EXPECT_NE(text.find("builtins/models.cpp"), std::string::npos) << text;
  EXPECT_NE(text.find("builtins_test.cpp"), std::string::npos) << text;
}

TEST(Builtins, EveryClassOfAPartIsInThatPart) {
  add_builtins();
  for (const PartClass& each : part_classes()) {
    const std::string kind = each.kind, name = each.name;
    const ClassEntry* entry = nullptr;
    if (kind == "callback") entry = Registry<Callback>::instance().find(name);
    if (kind == "data module") entry = Registry<DataModule>::instance().find(name);
    if (kind == "logger") entry = Registry<Logger>::instance().find(name);
    if (kind == "model") entry = Registry<LightningModule>::instance().find(name);
    ASSERT_NE(entry, nullptr) << name;
    EXPECT_TRUE(entry->file.ends_with("/builtins/" + std::string(each.part) + ".cpp")) << entry->file;
  }
}

TEST(Builtins, LightningsNamesAreTaken) {
  add_builtins();
  const test::CapturedConsole console;
  const auto resolved = [](const auto& registry, const std::string& name) {
    Problems problems;
    const ClassSpec spec = registry.resolve({name, {}, {}}, "x", problems);
    return problems.empty() ? spec.class_path : problems.lines()[0];
  };
  const auto& strategies = Registry<Strategy>::instance();
  EXPECT_EQ(resolved(strategies, "lightning.pytorch.strategies.DDPStrategy"), "ddp");
  EXPECT_EQ(resolved(strategies, "ddp_spawn"), "ddp");
  EXPECT_EQ(resolved(Registry<Callback>::instance(), "lightning.pytorch.callbacks.TQDMProgressBar"), "ProgressBar");
  EXPECT_EQ(resolved(Registry<Profiler>::instance(), "pytorch"), "trace");
  Problems problems;
  const ClassSpec ddp = strategies.resolve({"ddp_find_unused_parameters_true", {}, {}}, "x", problems);
  EXPECT_EQ(ddp.init_args.find("find_unused_parameters")->text, "true");
  EXPECT_TRUE(console.has("\"ddp_find_unused_parameters_true\" is called ddp with find_unused_parameters: true here"))
      << console.text();
}

}  // namespace
}  // namespace levin::builtins_test
