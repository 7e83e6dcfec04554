// Exceptions of user code on one of two ranks, with ddp and fsdp: the rank that fails reports its own error, the other
// one ends soon after it and says that another rank has ended, and both tear down what they have set up.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "levin/core/process/main_guard.h"
#include "reliability/user_run.h"
#include "strategies/forked_ranks.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::user_rank_faults_test {
namespace {

using namespace levin::test;

/// What one rank reports.
struct Report {
  Outcome outcome = {};
  std::map<std::string, int64_t> calls = {};
  bool is_there = false;  // it ended in time
  int status = -1;        // of its process, as a shell shows it
};

struct ThrowsAtItsEnd : Callback {  // every rank has the same callbacks
  explicit ThrowsAtItsEnd(bool is_armed) : throws(is_armed) {}
  ~ThrowsAtItsEnd() override {
    if (throws) throw_fault(Thrown::runtime_error);
  }
  bool throws;
};

/// Runs fit on two ranks, in processes of their own; `point` throws in its `call`-th call on `rank`, or a callback's
/// destructor, which is the point "destructor".
std::array<Report, 2> run_ranks(const std::string& strategy, int64_t rank, const std::string& point, int64_t call,
                                Thrown what = Thrown::runtime_error) {
  const TemporaryFolder folder;
  const std::string port = std::to_string(free_port());
  std::array<pid_t, 2> processes = {};
  std::array<int, 2> pipes = {};
  for (int64_t own = 0; own < 2; ++own) {
    std::array<int, 2> ends = {};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    processes.at(own) = ::fork();
    if (processes.at(own) == 0) {
      ::alarm(60);
      for (const auto& [name, value] : std::map<std::string, std::string>{{"RANK", std::to_string(own)},
                                                                          {"LOCAL_RANK", std::to_string(own)},
                                                                          {"WORLD_SIZE", "2"},
                                                                          {"LOCAL_WORLD_SIZE", "2"},
                                                                          {"MASTER_ADDR", "127.0.0.1"},
                                                                          {"MASTER_PORT", port}})
        ::setenv(name.c_str(), value.c_str(), 1);
      FaultPoints& points = FaultPoints::instance();
      points.clear();
      if (own == rank && !point.empty()) points.arm(point, call, what);
      nlohmann::json report;
      Outcome outcome;
      {
        UserRun run({.name = strategy, .strategy = strategy, .devices = 2}, folder.path());
        if (point == "destructor") {
          TrainerOptions options = run.options();
          options.callbacks.push_back(std::make_shared<ThrowsAtItsEnd>(own == rank));
          run.trainer = std::make_unique<Trainer>(options);
        }
        outcome = outcome_of([&] { run.run(Entry::fit); });
        report = {
            {"type", outcome.type}, {"text", outcome.text}, {"console", outcome.console}, {"calls", points.calls()}};
      }
      const std::string text = report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
      const bool is_written = ::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
      const CapturedConsole quiet;
      const int status = main_guard([&] {
        if (outcome.error != nullptr) std::rethrow_exception(outcome.error);
      });
      ::_exit(is_written ? status : 99);
    }
    ::close(ends[1]);
    pipes.at(own) = ends[0];
  }
  std::array<Report, 2> reports;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(40);
  for (size_t own = 0; own < 2; ++own) {
    std::string text;
    std::array<char, 65536> part = {};
    while (true) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      pollfd file = {.fd = pipes.at(own), .events = POLLIN, .revents = 0};
      if (::poll(&file, 1, static_cast<int>(std::max<int64_t>(0, left.count()))) <= 0) break;
      const ssize_t size = ::read(pipes.at(own), part.data(), part.size());
      if (size <= 0) break;
      text.append(part.data(), static_cast<size_t>(size));
    }
    ::close(pipes.at(own));
    if (text.empty()) ::kill(processes.at(own), SIGKILL);
    int status = 0;
    ::waitpid(processes.at(own), &status, 0);
    reports.at(own).status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    const auto report = nlohmann::json::parse(text, nullptr, false);
    if (report.is_discarded()) continue;
    reports.at(own) = {
        {report["type"], report["text"], report["console"]}, report["calls"], true, reports.at(own).status};
  }
  return reports;
}

// Lets each function with one of the prefixes throw on a rank: on both one after the other, or on the ranks by turns.
void try_functions(const std::string& strategy, const std::vector<std::string>& prefixes, bool on_both) {
  const bool shows = std::getenv("LEVIN_SHOW_CELLS") != nullptr;
  const auto undisturbed = run_ranks(strategy, 0, "", 0);
  for (const Report& report : undisturbed)
    ASSERT_TRUE(report.is_there && report.outcome.type.empty()) << report.outcome.all();
  std::set<std::string> functions;
  for (const Report& report : undisturbed) {
    for (const auto& [point, count] : report.calls) {
      if (std::any_of(prefixes.begin(), prefixes.end(),
                      [&, name = point](const auto& p) { return name.starts_with(p); }))
        functions.insert(point);
    }
  }
  EXPECT_GE(functions.size(), prefixes.size());
  size_t number = 0;
  for (const std::string& point : functions) {
    for (size_t rank = 0; rank < 2; ++rank) {
      const auto calls = undisturbed.at(rank).calls.find(point);
      const bool on_one_alone = undisturbed.at(1 - rank).calls.count(point) == 0;
      if (calls == undisturbed.at(rank).calls.end()) continue;
      if (!on_both && !on_one_alone && rank != number % 2) continue;
      SCOPED_TRACE(strategy + ": " + point + " on rank " + std::to_string(rank));
      if (shows) std::cerr << strategy << ": " << point << " on rank " << rank << std::endl;
      const auto start = std::chrono::steady_clock::now();
      const auto reports = run_ranks(strategy, static_cast<int64_t>(rank), point, (calls->second + 1) / 2);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      const Report &failed = reports.at(rank), &other = reports.at(1 - rank);
      if (shows)
        std::cerr << "    " << took.count() << " s\n    " << failed.outcome.type << ": " << failed.outcome.all()
                  << "    " << other.outcome.type << ": " << other.outcome.all() << std::endl;
      SCOPED_TRACE(failed.outcome.all() + "\nother: " + other.outcome.all());
      EXPECT_TRUE(failed.is_there && other.is_there);
      EXPECT_TRUE(has(failed.outcome.all(), "the planted fault"));
      EXPECT_LT(took.count(), 20);
      EXPECT_EQ(failed.status, failed.outcome.type.empty() ? 0 : 1);
      EXPECT_EQ(other.status, other.outcome.type.empty() ? 0 : 1);
      // Where the ranks have nothing left to exchange, the other one ends well.
      const bool is_at_end =
          point.ends_with("::teardown") || point == "Logger::finalize" || point == "Logger::log_final_metrics";
      EXPECT_EQ(other.outcome.type.empty(), is_at_end);
      const std::string cause = "rank " + std::to_string(rank) + ": ";  // of what one rank does for all
      EXPECT_TRUE(is_at_end || has(other.outcome.all(), "Another rank ended") || has(other.outcome.all(), cause));
      for (const Report& report : reports) {
        if (report.outcome.type.empty() || report.calls.count("LightningModule::configure_callbacks") == 0) continue;
        EXPECT_EQ(report.calls.count("LightningModule::teardown"), 1u);
        EXPECT_EQ(report.calls.count("LightningModule::on_exception"), 1u);
      }
    }
    ++number;
  }
}

// Reliability: exception.
TEST(UserFaultsOnRanks, OfHooksEndBothRanksOfDdp) {
  try_functions("ddp", {"Callback::", "LightningModule::", "DataModule::"}, /*on_both=*/false);
}

// Reliability: exception_of_data.
TEST(UserFaultsOnRanksOfData, OfDataLoggersAndOptimizersEndBothRanksOfDdp) {
  try_functions("ddp",
                {"Loader::", "Dataset::", "Sampler::", "BatchSampler::", "collate",
                 "Logger::", "Optimizer::", "LRScheduler::", "Metric::"},
                /*on_both=*/false);
}

// Reliability: exception.
TEST(UserFaultsOnRanksOfFsdp, OfHooksEndBothRanksOfFsdp) {
  try_functions("fsdp",
                {"Callback::on_train", "Callback::on_validation", "Callback::on_save", "Callback::on_before",
                 "LightningModule::training_step", "LightningModule::validation_step",
                 "LightningModule::optimizer_step", "DataModule::setup", "Optimizer::do_step"},
                /*on_both=*/false);
}

// Reliability: destructor.
TEST(UserFaultsOnRanks, OfADestructorEndTheProcessOfTheirRankAlone) {
  for (const std::string strategy : {"ddp", "fsdp"}) {
    for (const int64_t rank : {0, 1}) {
      SCOPED_TRACE(strategy + " " + std::to_string(rank));
      const auto reports = run_ranks(strategy, rank, "destructor", 0);
      EXPECT_EQ(reports.at(static_cast<size_t>(rank)).status, 128 + SIGABRT);
      EXPECT_EQ(reports.at(static_cast<size_t>(1 - rank)).status, 0);  // the fit has ended before
    }
  }
}

}  // namespace
}  // namespace levin::user_rank_faults_test
