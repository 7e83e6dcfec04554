// Exceptions of user code: from every function that a user can override, in every entry point, of every kind. Each cell
// asserts what the caller gets, that the text says where, that every teardown is called, that the newest checkpoint
// continues the run to the same weights, that the trainer can be used again, and that no thread or file is left.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <regex>
#include <set>

#include "reliability/user_run.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace levin::user_faults_test {
namespace {

using namespace levin::test;

size_t entries_of(const char* folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

/// What a cell does, and what came of it.
struct Cell {
  Entry entry = Entry::fit;
  std::string point;
  int64_t call = 1;
  Thrown what = Thrown::runtime_error;
};

/// The runs of one variant without faults: which functions are called, how often, and what they lead to.
struct Undisturbed {
  explicit Undisturbed(Variant how) : variant(std::move(how)) {
    FaultPoints& points = FaultPoints::instance();
    for (const Entry entry : kEntries) {
      const CapturedConsole quiet;
      UserRun run(variant, entry == Entry::fit ? std::string(folder.path()) : folder / entry_name(entry));
      std::filesystem::create_directories(run.folder);
      std::ofstream(run.module->artifact) << "an artifact";
      points.clear();
      run.run(entry, entry == Entry::resume ? checkpoint() : "");
      run.trainer.reset();
      calls[entry] = points.calls();
      if (entry == Entry::fit) weights = run.weights();
      if (entry == Entry::resume && !torch::equal(run.weights(), weights)) throw Error("a resumed run ends elsewhere");
    }
    points.clear();
  }
  /// In the middle of the second epoch.
  [[nodiscard]] std::string checkpoint() const {
    return folder / ("checkpoints/epoch=1-step=" + std::to_string(variant.accumulate == 1 ? 4 : 3) + ".ckpt");
  }

  Variant variant;
  TemporaryFolder folder = {};
  std::map<Entry, std::map<std::string, int64_t>> calls = {};
  at::Tensor weights = {};
};

// `continues`: a new process resumes the run, and the trainer is used again.
Outcome run_cell(const Undisturbed& undisturbed, const Cell& cell, bool continues) {
  const size_t threads = entries_of("/proc/self/task"), files = entries_of("/proc/self/fd");
  const TemporaryFolder folder;
  FaultPoints& points = FaultPoints::instance();
  Outcome outcome;
  {
    UserRun run(undisturbed.variant, folder.path());
    points.clear();
    points.arm(cell.point, cell.call, cell.what);
    outcome = outcome_of([&] { run.run(cell.entry, cell.entry == Entry::resume ? undisturbed.checkpoint() : ""); });
    points.disarm();
    EXPECT_EQ(points.thrown(), 1);
    // What the run has reached is torn down, once.
    if (points.calls_of("LightningModule::configure_callbacks") > 0 && !outcome.type.empty()) {
      EXPECT_EQ(points.calls_of("LightningModule::on_exception"), 1);
      EXPECT_EQ(points.calls_of("LightningModule::teardown"), 1);
      if (undisturbed.variant.data_module) {
        EXPECT_EQ(points.calls_of("DataModule::teardown"), 1);
      }
      if (points.calls_of("Callback::setup") > 0) {
        EXPECT_EQ(points.calls_of("Callback::teardown"), 1);
      }
      if (points.calls_of("Logger::start") > 0) {
        EXPECT_EQ(run.logger->finalized.back(), "failed");
      }
    }
    if (continues && cell.entry == Entry::fit) {
      UserRun next(undisturbed.variant, folder.path(), /*resumes=*/true);
      EXPECT_EQ(outcome_of([&] { next.run(Entry::fit); }).text, "");
      EXPECT_TRUE(torch::equal(next.weights(), undisturbed.weights)) << next.weights() << undisturbed.weights;
    }
    const Entry again = cell.entry == Entry::resume ? Entry::fit : cell.entry;
    if (continues && run.trainer != nullptr) {
      EXPECT_EQ(outcome_of([&] { run.run(again); }).text, "");
    }
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path()))
    EXPECT_EQ(entry.path().string().find(".tmp"), std::string::npos) << entry.path();
  EXPECT_EQ(entries_of("/proc/self/task"), threads);
  EXPECT_EQ(entries_of("/proc/self/fd"), files);
  return outcome;
}

bool is_one_of(const std::string& name, const std::vector<std::string>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](const auto& prefix) { return name.starts_with(prefix); });
}

std::string function_of(const std::string& point) {
  const size_t colons = point.find("::");
  return colons == std::string::npos ? point : point.substr(colons + 2);
}

// The type of the exception that the caller gets.
std::string expected_type(const Cell& cell, const Variant& variant) {
  const bool in_replica = is_one_of(
      cell.point, {"LightningModule::training_step", "LightningModule::validation_step", "LightningModule::forward"});
  if (variant.strategy == "dp" && in_replica) return "Error";  // with the replica and its device
  if (is_one_of(cell.point, {"Dataset::get", "Dataset::sample_id", "collate"})) return "DataError";
  switch (cell.what) {
    case Thrown::runtime_error: return "runtime_error";
    case Thrown::levin_error: return "Error";
    case Thrown::config_error: return "ConfigError";
    case Thrown::libtorch_error: return cell.point.ends_with("::load_state_dict") ? "CheckpointError" : "Error";
    case Thrown::own_exception: return "OwnException";
    case Thrown::bad_alloc: return "OutOfMemoryError";
    case Thrown::number: return "int";
  }
  return "";
}

// Functions that Levin calls within a hook of a different name, or between hooks. Their errors have the position alone.
bool is_named(const std::string& point, const Outcome& outcome) {
  if (outcome.type == "CheckpointError") return false;  // it names the file
  static const std::set<std::string> unnamed{"LightningModule::forward", "LightningModule::clone",
                                             "Callback::state_key", "Callback::is_monitoring"};
  return is_one_of(point, {"Callback::", "LightningModule::", "DataModule::", "ChangesBatches::"}) &&
         unnamed.count(point) == 0 && point != "DataModule::about_dtypes";
}

void expect_clear(const Variant& variant, const Cell& cell, const Outcome& outcome) {
  const std::string all = outcome.all();
  EXPECT_EQ(outcome.type, expected_type(cell, variant));
  const char* planted = cell.what == Thrown::number          ? "int"
                        : cell.what != Thrown::bad_alloc     ? "planted"
                        : outcome.type == "OutOfMemoryError" ? "out of memory"
                                                             : "bad_alloc";
  EXPECT_TRUE(has(all, planted));
  if (is_named(cell.point, outcome)) {
    EXPECT_TRUE(has(all, function_of(cell.point)));
  }
  if (cell.what == Thrown::bad_alloc && outcome.type == "OutOfMemoryError") {
    EXPECT_TRUE(holds(outcome.text, {"out of memory", "Use a smaller batch_size"}));
  }
  // Functions of a logger that its own thread calls.
  if (is_one_of(cell.point, {"Logger::log_"}) && !is_one_of(cell.point, {"Logger::log_dir", "Logger::log_final"}) &&
      cell.point != "Logger::log_hyperparams") {
    EXPECT_TRUE(has(all, "FaultyLogger"));
  }
}

void try_cell(const Undisturbed& undisturbed, const Cell& cell, bool continues) {
  const std::string name = undisturbed.variant.name + ": in " + entry_name(cell.entry) + ", call " +
                           std::to_string(cell.call) + " of " + cell.point + " throws a " +
                           expected_type(cell, undisturbed.variant);
  const bool shows = std::getenv("LEVIN_SHOW_CELLS") != nullptr;
  if (shows) std::cerr << name << std::endl;
  SCOPED_TRACE(name);
  const Outcome outcome = run_cell(undisturbed, cell, continues);
  if (shows) std::cerr << "    " << outcome.type << ": " << outcome.all() << std::endl;
  SCOPED_TRACE(outcome.type + ": " + outcome.all());
  expect_clear(undisturbed.variant, cell, outcome);
}

constexpr std::array kOtherKinds{Thrown::levin_error, Thrown::libtorch_error, Thrown::own_exception, Thrown::bad_alloc,
                                 Thrown::number};

// Most run in destructors: see the test of warnings.
const std::vector<std::string> kOnlyWarn{"Profiler::stop", "Profiler::end", "Profiler::summary", "Strategy::tear_down"};

// Reliability: exception.
TEST(UserFaults, AnExceptionFromEveryFunctionEndsTheRunWithItsPosition) {
  const Undisturbed undisturbed({});
  std::set<std::string> tried;
  size_t number = 0;
  for (const Entry entry : kEntries) {
    for (const auto& [point, calls] : undisturbed.calls.at(entry)) {
      if (!tried.insert(point).second) continue;
      try_cell(undisturbed, {entry, point, 1, Thrown::runtime_error}, false);
      if (calls > 1) try_cell(undisturbed, {entry, point, calls, Thrown::runtime_error}, true);
      const bool is_hook = point.starts_with("Callback::on_");
      for (size_t k = 0; k < kOtherKinds.size(); ++k) {  // a different kind for each function
        if (is_hook || k == number % kOtherKinds.size())
          try_cell(undisturbed, {entry, point, (calls + 1) / 2, kOtherKinds.at(k)}, !is_hook);
      }
      ++number;
    }
  }
}

// The functions with these prefixes, in fit and, if `evaluates`, in the evaluations.
void try_functions(const Variant& variant, const std::vector<std::string>& prefixes, bool evaluates = false) {
  const Undisturbed undisturbed(variant);
  size_t cells = 0;
  for (const Entry entry : kEntries) {
    if (entry != Entry::fit && !evaluates) continue;
    for (const auto& [point, calls] : undisturbed.calls.at(entry)) {
      if (!is_one_of(point, prefixes) || is_one_of(point, kOnlyWarn)) continue;
      try_cell(undisturbed, {entry, point, (calls + 1) / 2, Thrown::runtime_error}, true);
      ++cells;
    }
  }
  EXPECT_GE(cells, prefixes.size());
}

// Reliability: exception.
// Both the training thread and the thread of the loggers call it.
TEST(UserFaults, OfALoggersTakesEndTheRunInAnyCall) {
  const Undisturbed undisturbed({});
  const int64_t calls = undisturbed.calls.at(Entry::fit).at("Logger::takes");
  for (int64_t call = 1; call <= calls - 4; ++call)  // the clock decides on the last ones
    try_cell(undisturbed, {Entry::fit, "Logger::takes", call, Thrown::runtime_error}, false);
}

// Reliability: exception.
TEST(UserFaults, OfHooksEndARunWithRecordedSteps) {
  try_functions({.name = "recorded", .records = true},
                {"Callback::on_", "LightningModule::on_train", "LightningModule::training_step"});
}

TEST(UserFaults, OfHooksEndARunInTheMiddleOfAWindow) {
  try_functions({.name = "window", .accumulate = 2, .async_save = false},
                {"Callback::on_", "LightningModule::training_step", "LightningModule::backward"});
}

// Reliability: exception_of_data.
TEST(UserFaults, OfDataEndARunWithWorkers) {
  try_functions({.name = "workers", .workers = 2},
                {"Dataset::", "collate", "Sampler::", "BatchSampler::", "Loader::", "DataModule::"}, true);
}

TEST(UserFaults, InTheClosureOfAnOptimizerEndTheRun) {
  try_functions({.name = "closure", .needs_closure = true},
                {"LightningModule::training_step", "LightningModule::backward", "Optimizer::", "Callback::on_before",
                 "Callback::on_after", "LightningModule::optimizer_zero_grad"});
}

// Reliability: exception.
TEST(UserFaults, InAReplicaOfDpEndTheRun) {
  try_functions({.name = "dp", .strategy = "dp", .devices = 2},
                {"LightningModule::clone", "LightningModule::training_step", "LightningModule::forward",
                 "LightningModule::validation_step", "Callback::adapt_model"});
}

TEST(UserFaults, OfAModulesLoadersEndTheRun) {
  try_functions({.name = "loaders", .data_module = false},
                {"LightningModule::train_dataloader", "LightningModule::val_dataloader",
                 "LightningModule::test_dataloader", "LightningModule::predict_dataloader"},
                true);
}

TEST(UserFaults, OfOwnStrategiesPrecisionsAndProfilersEndTheRun) {
  try_functions({.name = "plugins", .own_plugins = true}, {"Strategy::", "Precision::", "Profiler::"}, true);
}

// Reliability: exception_of_release.
TEST(UserFaults, OfFunctionsThatReleaseThingsAreWarningsAndTheRunEndsWell) {
  const Undisturbed undisturbed({.name = "plugins", .own_plugins = true});
  for (const Entry entry : kEntries) {
    for (const auto& point : kOnlyWarn) {
      SCOPED_TRACE(point);
      const Outcome outcome = run_cell(undisturbed, {entry, point, 1, Thrown::runtime_error}, true);
      EXPECT_EQ(outcome.type, "");
      EXPECT_TRUE(holds(outcome.console, {"warning: " + function_of(point) + " of the ", "failed: the planted fault"}));
    }
  }
}

// Reliability: second_exception.
TEST(UserFaults, OfHooksThatRunWhenTheRunHasFailedAreWarnings) {
  const Undisturbed undisturbed({});
  for (const std::string point :
       {"Callback::on_exception", "DataModule::on_exception", "LightningModule::on_exception", "Callback::teardown",
        "DataModule::teardown", "LightningModule::teardown", "Logger::finalize"}) {
    for (const Thrown what : {Thrown::runtime_error, Thrown::bad_alloc, Thrown::number}) {
      SCOPED_TRACE(point);
      const TemporaryFolder folder;
      UserRun run({}, folder.path());
      FaultPoints& points = FaultPoints::instance();
      points.clear();
      points.arm("LightningModule::training_step", 2, Thrown::levin_error);
      points.arm(point, 1, what);
      const Outcome outcome = outcome_of([&] { run.run(Entry::fit); });
      points.disarm();
      EXPECT_EQ(points.thrown(), 2);
      EXPECT_EQ(outcome.text, "training_step, epoch 0, batch 1, global step 1: the planted fault");
      EXPECT_TRUE(holds(outcome.console,
                        {"warning: " + function_of(point) + " of Faulty",
                         "failed while the run was ending with an error: ", "The run ends with its first error."}));
      for (const char* kind : {"Callback", "DataModule", "LightningModule"}) {
        EXPECT_EQ(points.calls_of(std::string(kind) + "::on_exception"), 1);
        EXPECT_EQ(points.calls_of(std::string(kind) + "::teardown"), 1);
      }
      UserRun next({}, folder.path(), /*resumes=*/true);
      EXPECT_EQ(outcome_of([&] { next.run(Entry::fit); }).text, "");
      EXPECT_TRUE(torch::equal(next.weights(), undisturbed.weights));
    }
  }
}

// C++ ends a program whose destructor throws.
// Reliability: destructor.
TEST(UserFaultsDeathTest, OfADestructorEndTheProcessAndItsTextIsPrinted) {
  struct Throws : Callback {
    ~Throws() override { throw_fault(Thrown::runtime_error); }
  };
  const TemporaryFolder folder;  // this process removes it
  EXPECT_EXIT(
      {
        UserRun run({}, folder.path());
        TrainerOptions options = run.options();
        options.callbacks.push_back(std::make_shared<Throws>());
        Trainer(options).fit(*run.module, run.data);
      },
      testing::KilledBySignal(SIGABRT), "the planted fault");
}

// ---- the list of functions is complete ------------------------------------------------------------------------------

/// The virtual functions that a class declares in a header.
std::set<std::string> virtual_functions(const std::string& header, const std::string& name) {
  std::ifstream file(source_dir() + "/" + header);
  const std::string all((std::istreambuf_iterator<char>(file)), {});
  const size_t begin = all.find("\nclass " + name + " ");
  EXPECT_NE(begin, std::string::npos) << header << " has no class " << name;
  const std::string body = all.substr(begin, all.find("\n};\n", begin) - begin);
  static const std::regex declares(R"((\[\[deprecated[^\n]*)?virtual [^;{}=]*?(\w+)\()");
  std::set<std::string> functions;
  for (std::sregex_iterator at(body.begin(), body.end(), declares), end; at != end; ++at) {
    const std::string function = (*at)[2];
    if ((*at)[1].matched || function == name) continue;  // deprecated names, and the destructor
    functions.insert(function);
  }
  return functions;
}

TEST(UserFaults, AreThrownByEveryVirtualFunctionOfTheHeaders) {
  // Functions that a run on one device does not call, and where an exception from them is tested.
  const std::map<std::string, std::string> elsewhere{
      {"Loader::shard", "several ranks"},
      {"Loader::may_be_read_ahead", "a loader of unknown length"},
      {"Loader::stop", "BatchSizeFinder"},
      {"Loader::written_options", "several ranks"},
      {"DataModule::about_dtypes", "errors of types"},
      {"Logger::earlier_log_dirs", "auto_resume"},
      {"Metric::reductions", "several ranks"},
      {"Optimizer::is_recordable", "recorded steps"},
      {"Optimizer::updates_whole_tensors", "fsdp"},
      {"Loader::use_sequential_order", "overfit_batches"},
      {"Loader::set_batch_size", "BatchSizeFinder"},
      {"Dataset::has_get_batch", "DataLoader.NamesABatchThatCannotBeGathered"},
      {"Dataset::get_batch", "DataLoader.NamesABatchThatCannotBeGathered"},
      {"Dataset::get_range", "DataLoader.NamesABatchThatCannotBeGathered"},
      {"Dataset::length", "called before the run"},
      {"Sampler::repeats_its_samples", "called before the run"},
      {"DataModule::transfer_batch_to_device", "the module's is called unless it is overridden"},
      {"DataModule::label_names", "PredictionWriter"},
      {"DataModule::prediction_text", "PredictionWriter"},
      {"Logger::start_again", "a job that its cluster has restarted"},
      {"Optimizer::layout", "fsdp"},
      {"Optimizer::use_shards", "fsdp"},
      {"Optimizer::why_not_recordable", "recorded steps"},
      {"Optimizer::make_recordable", "recorded steps"},
      {"Optimizer::send_learning_rates", "recorded steps"},
      {"Optimizer::version", "recorded steps"},
      {"Optimizer::step_unless", "recorded steps"},
      {"LRScheduler::closed_form", "SequentialLR"},
      {"LRScheduler::begin", "called by attach()"},
      {"LRScheduler::undo", "SequentialLR"},
      {"LRScheduler::restart", "SequentialLR"},
      {"Metric::merge", "several ranks"},
      {"Strategy::use_sync_batchnorm", "several ranks"}};
  std::set<std::string> reached;
  for (const Variant& variant : {Variant(), Variant{.data_module = false}, Variant{.own_plugins = true},
                                 Variant{.strategy = "dp", .devices = 2}}) {
    const Undisturbed undisturbed(variant);
    for (const auto& [entry, calls] : undisturbed.calls) {
      for (const auto& [point, count] : calls) reached.insert(point);
    }
  }
  for (const char* kind : {"Callback", "DataModule", "LightningModule"})
    reached.insert(std::string(kind) + "::on_exception");
  for (const auto& [header, name] :
       std::vector<std::pair<std::string, std::string>>{{"trainer/callback.h", "Callback"},
                                                        {"trainer/changes_batches.h", "ChangesBatches"},
                                                        {"trainer/lightning_module.h", "LightningModule"},
                                                        {"data/data_module.h", "DataModule"},
                                                        {"data/loader.h", "Loader"},
                                                        {"data/loading/dataset.h", "Dataset"},
                                                        {"data/loading/sampler.h", "Sampler"},
                                                        {"data/loading/sampler.h", "BatchSampler"},
                                                        {"loggers/logger.h", "Logger"},
                                                        {"metrics/metric.h", "Metric"},
                                                        {"optim/optimizer.h", "Optimizer"},
                                                        {"optim/lr_scheduler.h", "LRScheduler"},
                                                        {"precision/precision.h", "Precision"},
                                                        {"profilers/profiler.h", "Profiler"},
                                                        {"strategies/strategy.h", "Strategy"}}) {
    const auto functions = virtual_functions(header, name);
    EXPECT_FALSE(functions.empty()) << name;
    for (const auto& function : functions) {
      const std::string point = name + "::" + function;
      EXPECT_NE(reached.count(point) > 0, elsewhere.count(point) > 0)
          << point << ": let it throw in faulty_parts.h, or say here where that is tested";
    }
  }
}

}  // namespace
}  // namespace levin::user_faults_test
