#include "levin/trainer/loops/tune_threads.h"

#include <ATen/Parallel.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <string>

#include "levin/core/console.h"
#include "levin/core/count_of.h"
#include "levin/core/log.h"
#include "levin/strategies/launch/rank_process.h"

namespace levin {

namespace {

bool is_deterministic(const TrainerOptions& options) {
  const auto* flag = std::get_if<bool>(&options.deterministic);
  return flag == nullptr || *flag;
}

// The mean without the slowest one of several, which may be a pause of the machine. No more is left out: where threads
// wait for cores that other programs use, most steps are as fast as ever, and a few take hundreds of times as long.
double mean_of(std::vector<double> times) {
  if (times.size() > 1) times.erase(std::max_element(times.begin(), times.end()));
  return std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
}

std::string milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g ms", seconds * 1000);
  return text;
}

}  // namespace

std::unique_ptr<ThreadTuning> ThreadTuning::of(Run& run) {
  const int most = threads_are_set_outside() ? 1 : at::get_num_threads();
  if (run.plan.num_threads > 0 || run.plan.device != "cpu" || is_deterministic(run.options)) return nullptr;
  // Ranks have the same number unless they were started with different ones: then they cannot choose together.
  const at::Tensor counts = at::scalar_tensor(most, at::kLong);
  const auto least = run.strategy->reduce(counts, ReduceOp::min).item<int64_t>();
  if (least < 2 || least != run.strategy->reduce(counts, ReduceOp::max).item<int64_t>()) return nullptr;
  return std::unique_ptr<ThreadTuning>(new ThreadTuning(run, most));
}

ThreadTuning::ThreadTuning(Run& run, int most)
    : run_(run), tuner_(most, static_cast<int>(std::min<int64_t>(run.progress.num_threads, most))) {
  use(tuner_.threads());
}

void ThreadTuning::use(int threads) {
  threads_.reset();
  threads_.emplace(threads);
}

void ThreadTuning::end_window() {
  windows_.push_back(std::exchange(window_, {}).count());
  if (static_cast<int64_t>(windows_.size()) < tuner_.windows()) return;
  const at::Tensor mine = at::scalar_tensor(mean_of(std::move(windows_)), at::kDouble);
  windows_.clear();
  const int before = tuner_.threads();
  const bool ended = tuner_.add(run_.strategy->reduce(mine, ReduceOp::max).item<double>());
  if (tuner_.threads() != before) use(tuner_.threads());
  if (!ended) return;
  const int64_t last = std::exchange(run_.progress.num_threads, tuner_.threads());
  if (last != tuner_.threads()) report();
}

void ThreadTuning::report() const {
  log::trainer.info("num_threads: auto chose {}", count_of(tuner_.threads(), "thread"));
  if (!run_.plan.model_summary || run_.strategy->rank() != 0) return;
  std::string times;
  for (const auto& one : tuner_.timed()) {
    times += (times.empty() ? "" : ", ") + milliseconds(one.seconds) + " with " + std::to_string(one.threads);
  }
  Console::instance().print("num_threads: auto chose " + count_of(tuner_.threads(), "thread") + " (a step takes " +
                            times + ")");
}

}  // namespace levin
