#include "levin/trainer/loops/tune_threads.h"

#include <ATen/Parallel.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/log.h"
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
  const auto least = run.strategy->ranks().reduce(counts, ReduceOp::min).item<int64_t>();
  if (least < 2 || least != run.strategy->ranks().reduce(counts, ReduceOp::max).item<int64_t>()) return nullptr;
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
  const bool ended = tuner_.add(run_.strategy->ranks().reduce(mine, ReduceOp::max).item<double>());
  if (tuner_.threads() != before) use(tuner_.threads());
  if (!ended) return;
  const int64_t last = std::exchange(run_.progress.num_threads, tuner_.threads());
  if (last != tuner_.threads()) report();
}

void ThreadTuning::report() const {
  log::trainer.info("num_threads: auto chose {}", count_of(tuner_.threads(), "thread"));
  if (!run_.plan.model_summary || run_.strategy->ranks().rank() != 0) return;
  std::string times;
  for (const auto& one : tuner_.timed()) {
    times += (times.empty() ? "" : ", ") + milliseconds(one.seconds) + " with " + std::to_string(one.threads);
  }
  Console::instance().print("num_threads: auto chose " + count_of(tuner_.threads(), "thread") + " (a step takes " +
                            times + ")");
}

namespace {

constexpr double kMeasured = 0.1;      // seconds of steps with each number
constexpr double kHopeless = 3.0;      // times the best: not measured any longer
constexpr double kMuchSlower = 1.2;    // times the best: nothing beyond it is tried
constexpr double kEqual = 1.1;         // times the best: noise, so the smallest such number is taken
constexpr double kSlowedDown = 1.5;    // times the usual: measured again
constexpr double kLeastPatience = 10;  // times the last measurement: how long a slower step is tolerated
constexpr double kLongestWait = 3600;  // seconds between two measurements

std::vector<int> counts_up_to(int most) {
  std::vector<int> counts;
  for (int count = 1; count < most; count *= 2) counts.push_back(count);
  counts.push_back(std::max(1, most));
  return counts;
}

int64_t windows_for(double wanted_seconds, double window, int64_t least, int64_t most) {
  if (!(window > 0)) return most;
  return std::clamp(static_cast<int64_t>(std::ceil(std::min(wanted_seconds / window, 1e9))), least, most);
}

}  // namespace

ThreadTuner::ThreadTuner(int most, int start) : counts_(counts_up_to(most)) {
  const int wanted = start > 0 ? start : most;
  const auto found = std::lower_bound(counts_.begin(), counts_.end(), wanted);
  begin(found == counts_.end() ? counts_.size() - 1 : static_cast<size_t>(found - counts_.begin()));
}

void ThreadTuner::begin(size_t first) {
  first_ = first;
  direction_ = -1;
  running_.clear();
  spent_ = 0;
  try_count(first);
}

void ThreadTuner::try_count(size_t which) {
  at_ = which;
  phase_ = Phase::warm_up;
  windows_ = 1;
}

double ThreadTuner::best() const {
  double least = running_.front().seconds;
  for (const Timed& one : running_) least = std::min(least, one.seconds);
  return least;
}

bool ThreadTuner::add(double seconds) {
  (phase_ == Phase::keep ? since_ : spent_) += seconds * static_cast<double>(windows_);
  switch (phase_) {
    case Phase::warm_up:  // threads start, memory is allocated
      warm_up_ = seconds;
      phase_ = Phase::probe;
      return false;
    case Phase::probe:  // two slow windows: one may have waited for another program
      if (!running_.empty() && std::min(warm_up_, seconds) > kHopeless * best()) return finish_count(seconds);
      phase_ = Phase::measure;
      windows_ = windows_for(kMeasured, seconds, 4, 200);
      return false;
    case Phase::measure: return finish_count(seconds);
    case Phase::keep: watch(seconds); return false;
  }
  return false;
}

bool ThreadTuner::finish_count(double seconds) {
  running_.push_back({counts_[at_], seconds});
  if (next_count()) return false;
  choose();
  return true;
}

// Tries fewer threads as long as that is not much slower, then more in the same way.
bool ThreadTuner::next_count() {
  const bool much_slower = running_.back().seconds > kMuchSlower * best();
  if (direction_ < 0) {
    if (!much_slower && at_ > 0) return try_count(at_ - 1), true;
    direction_ = 1;
    at_ = first_;
  } else if (much_slower) {
    return false;
  }
  if (at_ + 1 >= counts_.size()) return false;
  try_count(at_ + 1);
  return true;
}

// Where times are equal, fewer threads leave cores to other programs, and lose less when those take them.
void ThreadTuner::choose() {
  const int present = running_.front().threads;
  Timed chosen{counts_.back() + 1, 0};
  for (const Timed& one : running_) {
    if (one.seconds <= kEqual * best() && one.threads < chosen.threads) chosen = one;
  }
  at_ = static_cast<size_t>(std::lower_bound(counts_.begin(), counts_.end(), chosen.threads) - counts_.begin());
  const bool changed = chosen.threads != present;
  again_in_ = changed ? 60 : std::min(2 * again_in_, kLongestWait);
  again_in_ = std::max(again_in_, 100 * spent_);
  patience_ = changed ? kLeastPatience : 2 * patience_;
  usual_ = chosen.seconds;
  since_ = 0;
  slow_ = 0;
  phase_ = Phase::keep;
  windows_ = windows_for(kMeasured, usual_, 1, 200);
  timed_ = std::exchange(running_, {});
}

// Measured again where steps have become slower, and from time to time: a run may have started while another program
// was running that has ended since.
void ThreadTuner::watch(double seconds) {
  if (seconds < usual_) usual_ += (seconds - usual_) / 10;
  slow_ = seconds > kSlowedDown * usual_ ? slow_ + 1 : 0;
  const bool slower = slow_ >= 2 && since_ >= patience_ * spent_;
  if (counts_.size() > 1 && (slower || since_ >= again_in_)) begin(at_);
}

}  // namespace levin
