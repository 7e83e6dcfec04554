// The state of a sweep, in FOLDER/sweep.sqlite. Every change is one transaction.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "levin/cli/sweep/sweep_options.h"
#include "levin/core/files/sqlite.h"

namespace levin {

// --- A trial of a sweep, as its database holds it.

enum class TrialState {
  waiting,  // to be started, or started again
  running,
  paused,     // has the result of a rung, and a checkpoint to continue from
  completed,  // has its final value
  failed
};

/// Keys of the run file and their values, as on the command line.
using Parameters = std::vector<std::pair<std::string, std::string>>;

/// The value of a trial at one rung, and the checkpoint with its weights.
struct RungResult {
  int64_t resource = 0;  // epochs or steps; 0: the whole run
  double value = 0;
  std::string checkpoint = "";   // holds the weights that the value was measured with; "": no file does
  int64_t checkpoint_step = -1;  // logging step of that file: a later state may replace it under the same name
};

/// A trial: its parameters, its state, its results and its process.
struct Trial {
  int64_t id = 0;
  TrialState state = TrialState::waiting;
  Parameters parameters = {};
  int64_t bracket = 0;                 // of hyperband
  int64_t target = 0;                  // the resource that it runs to; 0: to its end
  bool finished = false;               // its run has ended by itself and can go no further
  std::vector<RungResult> rungs = {};  // in their order
  int64_t slot = 0;
  int64_t launches = 0;
  int64_t failures = 0;
  std::string error = "";
  int64_t pid = 0;                // of its process, 0: none was started
  std::string process = "";       // start time and boot of that process
  double started = 0, ended = 0;  // seconds since 1970, 0: not yet
  double launched = 0;            // when its process was started last
  double ran = 0;                 // seconds of all launches before

  /// The value at its highest rung.
  [[nodiscard]] std::optional<double> value() const {
    return rungs.empty() ? std::nullopt : std::optional(rungs.back().value);
  }
};

/// Whether any of them can be ranked.
[[nodiscard]] bool any_has_value(const std::vector<Trial>& trials);

/// "running"
[[nodiscard]] const char* word(TrialState state);

/// "optimizer.lr=0.01 model.hidden=64"
[[nodiscard]] std::string parameters_text(const Parameters& parameters);

/// Whether a value is better than another; nan is worse than all numbers.
[[nodiscard]] bool is_better(double value, double than, bool higher_is_better);

/// The trial with the best value among the trials that reached the highest resource; the first of equal ones. Null if
/// no trial has a value.
[[nodiscard]] const Trial* best_trial(const std::vector<Trial>& trials, bool higher_is_better);

// --- At most one process runs the trials of a sweep: a lock on FOLDER/sweep.lock, which the system releases when that
// process ends, however it ends.

/// The lock of a sweep, held while the object lives. Not thread safe.
class SweepLock {
 public:
  /// Throws Error naming the process that runs the sweep.
  explicit SweepLock(const std::string& folder);
  /// Null if another process holds it.
  [[nodiscard]] static std::unique_ptr<SweepLock> try_take(const std::string& folder);
  ~SweepLock();
  SweepLock(const SweepLock&) = delete;
  SweepLock& operator=(const SweepLock&) = delete;

  /// Whether a process runs the sweep.
  [[nodiscard]] static bool is_held(const std::string& folder);

 private:
  explicit SweepLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

/// The database of a sweep. Several processes may use one sweep at a time: every change is one transaction, and each
/// waits up to 30 seconds for the others. Functions throw Error if the database is damaged or cannot be written. Not
/// thread safe.
class SweepStore {
 public:
  /// What a sweep was started with.
  struct Plan {
    std::string name = "";
    std::string sweep = "";            // the sweep's file, as YAML; without `run`
    std::string working_folder = "";   // of the trials
    int64_t max_resource = 0;          // of asha and hyperband
    Seconds stop_grace = Seconds(25);  // how long a trial that is asked to stop may take; 0: no limit
  };
  /// A trial that is to be added.
  struct NewTrial {
    Parameters parameters = {};
    int64_t target = 0;
    int64_t bracket = 0;
  };

  /// Whether the folder holds a sweep.
  [[nodiscard]] static bool exists(const std::string& folder);

  /// A new sweep; the folder is made.
  [[nodiscard]] static SweepStore create(const std::string& folder, const Plan& plan);

  /// Throws Error if there is none, or one of another version.
  explicit SweepStore(const std::string& folder);

  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] const Plan& plan() const { return plan_; }
  [[nodiscard]] const SweepOptions& options() const { return options_; }
  [[nodiscard]] const Space& space() const { return space_; }
  [[nodiscard]] bool higher_is_better() const { return options_.mode == SweepMode::max; }
  /// Replaces the sweep's file, as YAML.
  void change_limits(const std::string& sweep);
  /// FOLDER/trials/0007
  [[nodiscard]] std::string trial_folder(int64_t id) const;

  /// All trials, by id. The database is read only if it has changed since the last call.
  [[nodiscard]] const std::vector<Trial>& trials();
  /// Throws Error if there is none of this id.
  [[nodiscard]] Trial trial(int64_t id);

  /// Adds a waiting trial, whose id is the number of trials before it: `propose` makes it from that number, or refuses.
  /// Counting, proposing and adding are one transaction. Returns the id; unset if it was refused.
  std::optional<int64_t> add(const std::function<std::optional<NewTrial>(int64_t id)>& propose);
  /// Lets a paused trial wait for a slot, to run up to `target`.
  void go_on(int64_t id, int64_t target);
  /// A waiting trial becomes running; false if it does not wait (any more). Its process starts once `pid` is set.
  [[nodiscard]] bool take(int64_t id, int64_t slot, double now);
  void set_process(int64_t id, int64_t pid, const std::string& process);
  /// A running trial waits again, because it was stopped or its process was lost; it ran until `now`, as in the next
  /// two functions.
  void put_back(int64_t id, double now);
  /// `higher`: there are rungs above this one.
  void record_result(int64_t id, const RungResult& result, bool finished, bool higher, double now);
  /// A trial failed: it waits again, or it has failed for good.
  void record_failure(int64_t id, const std::string& error, bool again, double now);
  /// The value of a waiting trial, measured elsewhere; false if it does not wait.
  [[nodiscard]] bool tell(int64_t id, double value, double now);

  /// Time that the sweep has run, in seconds.
  [[nodiscard]] double elapsed();
  void set_elapsed(double seconds);

 private:
  void read_trials();
  void read_plan();
  void upgrade();

  std::string folder_;
  std::shared_ptr<SqliteFile> database_;
  std::vector<Trial> trials_ = {};
  std::optional<std::pair<int64_t, int64_t>> read_version_ = std::nullopt;  // of the database, when trials_ was read
  Plan plan_ = {};
  SweepOptions options_ = {};
  Space space_ = {};
};

}  // namespace levin
