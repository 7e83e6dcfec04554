// The exit statuses that docs/reliability.md promises for faults of a user's code and data: for each cell of
// user_faults.json a process whose main function is main_guard meets the fault, and returns the cell's status. Cells of
// several ranks are in user_rank_faults_test.cpp.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "levin/core/process/main_guard.h"
#include "reliability/odd_data.h"
#include "reliability/user_run.h"
#include "support/limited_allocator.h"
#include "support/paths.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::user_statuses_test {
namespace {

using namespace levin::test;

/// What a program does, with a folder for its files.
using Body = std::function<void(const std::string& folder)>;

struct Ended {
  int status = -1;  // as a shell shows it
  std::string printed = "";
};

/// Runs main_guard(body) in a process of its own.
Ended run_process(const Body& body) {
  const TemporaryFolder folder;
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    const int file = ::open((folder / "printed").c_str(), O_WRONLY | O_CREAT, 0600);
    ::dup2(file, 1);
    ::dup2(file, 2);
    const int status = main_guard([&] { body(folder.path()); });
    std::fflush(nullptr);
    ::_exit(status);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  std::ifstream printed(folder / "printed");
  return {.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status),
          .printed = std::string(std::istreambuf_iterator<char>(printed), {})};
}

/// A program whose functions `points` throw in their first call; a resumed run throws after it has been resumed.
Body throwing(Entry entry, std::vector<std::string> points, Thrown what = Thrown::runtime_error, Variant variant = {}) {
  return [=](const std::string& folder) {
    if (entry == Entry::resume) UserRun(variant, folder).run(Entry::fit);
    UserRun run(variant, folder);
    for (const std::string& point : points) FaultPoints::instance().arm(point, 1, what);
    run.run(entry, entry == Entry::resume ? folder + "/checkpoints/epoch=1-step=4.ckpt" : "");
  };
}
Body throwing(const std::string& point, const Variant& variant = {}) {
  return throwing(Entry::fit, {point}, Thrown::runtime_error, variant);
}

/// A program that trains, with `change` applied to the options.
template <class Module = TinyModule, class Data>
Body training(
    Data data, const std::function<void(TrainerOptions&)>& change = [](TrainerOptions&) {}) {
  return [=](const std::string& folder) {
    TrainerOptions options = quiet();
    options.default_root_dir = folder;
    change(options);
    Module module;
    Trainer(options).fit(module, data(), tiny_loader(4));
  };
}

Body with_batch(
    const std::function<Batch()>& odd, const std::function<void(TrainerOptions&)>& change = [](TrainerOptions&) {}) {
  return training([=] { return with_odd_batch(odd); }, change);
}

Body with_samples(const std::function<int64_t(int64_t)>& size_after) {
  return [=](const std::string&) {
    TinyModule module;
    int64_t steps = 0;
    module.on_training_step = [&](int64_t) { ++steps; };
    Trainer(quiet()).fit(module,
                         DataLoader(std::make_shared<Samples>([&] { return size_after(steps); }), {.batch_size = 4}));
  };
}

/// Samples of which the one at index 5 is `odd`.
struct OneOddSample : Dataset {
  explicit OneOddSample(at::Tensor tensor) : odd(std::move(tensor)) {}
  [[nodiscard]] int64_t size() const override { return 8; }
  [[nodiscard]] Batch get(int64_t index) const override {
    return {torch::ones({4}), index == 5 ? odd : torch::ones({1})};
  }
  at::Tensor odd;
};

Body with_sample(const at::Tensor& odd) {
  return training([=] { return DataLoader(std::make_shared<OneOddSample>(odd), {.batch_size = 4}); });
}

/// The loss is finite, and its gradient is not.
struct NanGradient : TinyModule {
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    return TinyModule::training_step(batch, batch_idx) + (layer->weight * 0).sum().sqrt() * 0;
  }
};

/// Logs `count` metrics, or one that is nan.
template <int64_t count>
struct Logs : TinyModule {
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    for (int64_t k = 0; k < count; ++k) log("metric/" + std::to_string(k), static_cast<double>(k));
    if (count == 0) log("a, \"b\"/../c", std::numeric_limits<double>::quiet_NaN());
    return TinyModule::training_step(batch, batch_idx);
  }
  void validation_step(const Batch&, int64_t) override { log("v", std::numeric_limits<double>::quiet_NaN()); }
};

struct ThrowsAtItsEnd : Callback {
  ~ThrowsAtItsEnd() override { throw_fault(Thrown::runtime_error); }
};

/// Lets no tensor be allocated from the first batch of `phase`, training or validation, or from the first save on.
struct NoMemory : Callback {
  explicit NoMemory(std::string where) : phase(std::move(where)) {}
  void on_train_batch_start(Trainer&, LightningModule&, const Batch&, int64_t) override { at("training"); }
  void on_validation_batch_start(Trainer&, LightningModule&, const Batch&, int64_t, int64_t) override {
    at("validation");
  }
  void on_save_checkpoint(Trainer&, LightningModule&, State&) override { at("saving"); }
  void at(const std::string& where) const {
    if (where == phase) LimitedAllocator::instance().limit = LimitedAllocator::instance().held();
  }
  std::string phase;
};

Body without_memory(const std::string& phase, const std::string& strategy = "single_device") {
  return [=](const std::string& folder) {
    UserRun run({.strategy = strategy, .devices = strategy == "dp" ? 2 : 1}, folder);
    TrainerOptions options = run.options();
    options.callbacks.push_back(std::make_shared<NoMemory>(phase));
    const MemoryLimit memory;
    Trainer(options).fit(*run.module, run.data);
  };
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Batch nan_batch() {
  return {torch::full({4, 4}, kNan), torch::ones({4, 1})};
}
Batch narrow_batch() {
  return {torch::ones({4, 3}), torch::ones({4, 1})};
}
void record(TrainerOptions& options) {
  options.record_steps = true;
}

/// A program that meets the fault in a phase and with a strategy of the page.
struct Case {
  std::string fault, phase, strategy;
  Body body;
};

std::vector<Case> exceptions() {
  const Variant recorded{.name = "recorded", .records = true}, dp{.name = "dp", .strategy = "dp", .devices = 2};
  const Variant plugins{.name = "plugins", .own_plugins = true};
  std::vector<Case> all{
      {"exception", "setup", "single", throwing("LightningModule::setup")},
      {"exception", "training", "single", throwing("LightningModule::training_step")},
      {"exception", "validation", "single", throwing("LightningModule::validation_step")},
      {"exception", "saving", "single", throwing("Callback::on_save_checkpoint")},
      {"exception", "evaluation", "single", throwing(Entry::test, {"LightningModule::test_step"})},
      {"exception", "ending", "single", throwing("LightningModule::teardown")},
      {"exception", "training", "record", throwing("LightningModule::training_step", recorded)},
      {"exception", "validation", "record", throwing("Callback::on_validation_start", recorded)},
      {"exception", "saving", "record", throwing("Callback::on_save_checkpoint", recorded)},
      {"exception", "ending", "record", throwing("LightningModule::on_train_end", recorded)},
      {"exception", "setup", "dp", throwing("LightningModule::clone", dp)},
      {"exception", "training", "dp", throwing("LightningModule::training_step", dp)},
      {"exception", "validation", "dp", throwing("LightningModule::validation_step", dp)},
      {"exception_of_data", "training", "single", throwing("Dataset::get", {.workers = 2})},
      {"exception_of_data", "validation", "single", throwing("BatchSampler::batches", {.workers = 2})},
      {"exception_of_data", "evaluation", "single",
       throwing(Entry::predict, {"Dataset::get"}, Thrown::runtime_error, {.workers = 2})},
      {"second_exception", "ending", "single",
       throwing(Entry::fit, {"LightningModule::training_step", "LightningModule::on_exception",
                             "LightningModule::teardown", "Logger::finalize"})},
      {"destructor", "ending", "single", [](const std::string& folder) {
         UserRun run({}, folder);
         TrainerOptions options = run.options();
         options.callbacks.push_back(std::make_shared<ThrowsAtItsEnd>());
         Trainer(options).fit(*run.module, run.data);
       }}};
  for (const char* phase : {"setup", "training", "validation", "saving", "ending"}) {
    all.push_back({"exception_of_release", phase, "single",
                   throwing(Entry::fit, {"Profiler::stop", "Profiler::end", "Profiler::summary", "Strategy::tear_down"},
                            Thrown::runtime_error, plugins)});
  }
  all.push_back({"exception_of_release", "evaluation", "single",
                 throwing(Entry::validate, {"Profiler::stop", "Profiler::end", "Profiler::summary"},
                          Thrown::runtime_error, plugins)});
  return all;
}

std::vector<Case> numbers_and_memory() {
  const auto skip = [](TrainerOptions& options) {
    record(options);
    options.nonfinite_loss = NonFiniteLoss::skip;
  };
  const auto good = [] { return tiny_loader(8); };
  return {{"no_memory", "training", "single", without_memory("training")},
          {"no_memory", "saving", "single", without_memory("saving")},
          {"no_memory", "validation", "single", without_memory("validation")},
          {"no_memory", "training", "dp", without_memory("training", "dp")},
          {"no_memory", "validation", "dp", without_memory("validation", "dp")},
          {"nonfinite_input", "training", "single", with_batch(nan_batch)},
          {"nonfinite_loss", "training", "single", with_batch(nan_batch)},
          {"nonfinite_loss", "training", "record", with_batch(nan_batch, record)},
          {"nonfinite_gradient", "training", "single", training<NanGradient>(good)},
          {"nonfinite_gradient", "training", "record", training<NanGradient>(good, skip)},
          {"nonfinite_metric", "training", "single", training<Logs<0>>(good)},
          {"nonfinite_metric", "validation", "single", training<Logs<0>>(good)},
          {"many_names", "training", "single", training<Logs<10000>>(good)},
          {"odd_names", "training", "single", training<Logs<0>>(good)}};
}

std::vector<Case> data() {
  constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();
  const auto three = [](TrainerOptions& options) {
    options.limit_train_batches = int64_t{3};
    options.limit_val_batches = int64_t{3};
  };
  const auto evaluated = [](std::optional<int64_t> real, std::optional<int64_t> claimed) {
    return [=](const std::string&) {
      TinyModule module;
      TrainerOptions options = quiet(1);
      options.limit_val_batches = int64_t{3};
      Trainer(options).fit(module, batches(3, 3), batches(*real, claimed));
      options.limit_test_batches = int64_t{3};
      (void)Trainer(options).test(module, batches(*real, claimed));
    };
  };
  return {{"empty_loader", "training", "single", training([] { return batches(0, 0); })},
          {"empty_loader", "validation", "single", evaluated(0, 0)},
          {"empty_loader", "evaluation", "single", evaluated(0, 0)},
          {"empty_stream", "training", "single", training([] { return batches(0, std::nullopt); })},
          {"empty_batch", "training", "single", with_batch([] { return good_batch(0); })},
          {"endless", "training", "single", training([] { return batches(kEndless, std::nullopt); }, three)},
          {"endless", "validation", "single", evaluated(kEndless, std::nullopt)},
          {"endless", "evaluation", "single", evaluated(kEndless, std::nullopt)},
          {"short_loader", "training", "single", training([] { return batches(3, 6); })},
          {"long_loader", "training", "single", training([] { return batches(9, 3); })},
          {"false_size", "training", "single", with_samples([](int64_t) { return 12; })},
          {"changed_size", "training", "single", with_samples([](int64_t steps) { return steps == 0 ? 8 : 4; })},
          {"negative_size", "setup", "single", with_samples([](int64_t) { return -1; })},
          {"negative_batches", "setup", "single", training([] { return batches(3, -1); })},
          {"negative_batches", "evaluation", "single", evaluated(3, -1)},
          {"odd_batch", "training", "single", with_batch(narrow_batch)},
          {"odd_batch", "training", "record", with_batch(narrow_batch, record)},
          {"ragged_samples", "training", "single", with_sample(torch::ones({2}))},
          {"undefined_sample", "training", "single", with_sample(at::Tensor())}};
}

TEST(ExitStatuses, OfEveryFaultAreThoseOfThePage) {
  std::vector<Case> cases = exceptions();
  for (const auto& part : {numbers_and_memory(), data()}) cases.insert(cases.end(), part.begin(), part.end());
  const auto page = nlohmann::json::parse(std::ifstream(source_dir() + "/tests/reliability/user_faults.json"));
  size_t tried = 0;
  for (const auto& fault : page.at("faults")) {
    for (const auto& cell : fault.at("cells")) {
      for (const std::string strategy : cell.at("strategies")) {
        for (const std::string phase : cell.at("phases")) {
          const std::string name = fault.at("name");
          SCOPED_TRACE(name + ", " + phase + ", " + strategy);
          if (strategy == "ddp" || strategy == "fsdp") continue;
          const auto found = std::find_if(cases.begin(), cases.end(), [&](const Case& one) {
            return one.fault == name && one.phase == phase && one.strategy == strategy;
          });
          if (found == cases.end()) {
            ADD_FAILURE() << "no process meets this fault: add it above";
            continue;
          }
          const Ended ended = run_process(found->body);
          EXPECT_EQ(ended.status, cell.at("status").get<int>()) << ended.printed;
          EXPECT_EQ(ended.printed.find("error: ") != std::string::npos, ended.status == 1 || ended.status == 2)
              << ended.printed;
          ++tried;
        }
      }
    }
  }
  EXPECT_EQ(tried, cases.size());
}

TEST(ExitStatuses, OfAnExceptionAreTheSameInEveryEntry) {
  const std::map<Entry, std::string> points{{Entry::fit, "LightningModule::training_step"},
                                            {Entry::resume, "LightningModule::on_load_checkpoint"},
                                            {Entry::validate, "LightningModule::validation_step"},
                                            {Entry::test, "LightningModule::test_step"},
                                            {Entry::predict, "LightningModule::predict_step"}};
  for (const Entry entry : kEntries) {
    for (const Thrown what : {Thrown::runtime_error, Thrown::levin_error, Thrown::config_error, Thrown::libtorch_error,
                              Thrown::own_exception, Thrown::bad_alloc, Thrown::number}) {
      SCOPED_TRACE(std::string(entry_name(entry)) + ", kind " + std::to_string(static_cast<int>(what)));
      const Ended ended = run_process(throwing(entry, {points.at(entry)}, what));
      EXPECT_EQ(ended.status, what == Thrown::config_error ? 2 : 1) << ended.printed;
      EXPECT_NE(ended.printed.find("error: "), std::string::npos) << ended.printed;
    }
  }
}

}  // namespace
}  // namespace levin::user_statuses_test
