// The state of a sweep, in FOLDER/sweep.sqlite. Every change is one transaction.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "levin/cli/sweep/sweep_options.h"
#include "levin/cli/sweep/trial.h"
#include "levin/core/sqlite.h"

namespace levin {

class SweepStore {
 public:
  /// What a sweep was begun with.
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
  /// A paused trial waits to go on.
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
