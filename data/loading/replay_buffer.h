// Rows that training draws again and again while others arrive: transitions of an agent, samples of a simulation.
//
//   levin::ReplayBuffer buffer({.capacity = 100'000, .prioritized = true});
//   buffer.add({{"observation", o}, {"action", a}, {"reward", r}, {"next", n}});     // any thread
//   const levin::Batch batch = buffer.sample(64);                                    // with "ids" and "weights"
//   …
//   buffer.update_priorities(batch["ids"], td_errors);
//
// Any thread may call any function at any time. ReplayLoader (data/loading/replay_loader.h) makes it a loader.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/core/state.h"
#include "levin/data/batch.h"
#include "levin/data/loading/sum_tree.h"

namespace levin {

/// Options of ReplayBuffer. The defaults of alpha and beta are the values that Schaul et al. 2016 use for
/// proportional priorities.
struct ReplayBufferOptions {
  int64_t capacity = 100000;  // rows; the oldest are replaced
  bool prioritized = false;   // draw rows by their priorities; false: each with the same probability
  double alpha = 0.6;         // exponent of the priorities; 0: all rows are equal
  double beta = 0.4;          // exponent of the weights; 1: they correct the probabilities completely
  double epsilon = 1e-6;      // added to each priority, so that every row can be drawn
  int64_t seed = -1;          // of the draws; -1: the run's seed
  template <class = void>
  static auto fields() {
    using O = ReplayBufferOptions;
    return levin::fields(
        field("capacity", &O::capacity, "rows; the oldest are replaced").min(1),
        field("prioritized", &O::prioritized, "draw rows by their priorities; false: all with the same probability"),
        field("alpha", &O::alpha, "exponent of the priorities; 0: all rows are equal").min(0.0).max(1.0),
        field("beta", &O::beta, "exponent of the weights; 1: a complete correction").min(0.0).max(1.0),
        field("epsilon", &O::epsilon, "added to each priority, so that every row can be drawn").above(0.0),
        field("seed", &O::seed, "of the draws; -1: the run's seed").min(-1));
  }
};

/// A ring of rows in memory. Each row is a Batch without batch dimension, whose tensors either all have names or none.
/// The first row sets names, shapes and types; tensors of later rows are copied, from any device, into CPU memory that
/// was allocated for all rows. The fields "ids" and "weights" are reserved.
///
/// With `prioritized`, row i is drawn with P(i) = p_i^alpha / sum_k p_k^alpha, p = |value| + epsilon, stratified over a
/// batch, and its weight is (N P(i))^-beta, divided by the largest of the batch: Schaul et al., Prioritized Experience
/// Replay, https://arxiv.org/abs/1511.05952, section 3. A new row has the highest priority given so far.
///
/// Draws depend on the seed and on their number alone, so the same calls in the same order give the same batches.
class ReplayBuffer {
 public:
  using Options = ReplayBufferOptions;

  explicit ReplayBuffer(Defaults = {}) : ReplayBuffer(ReplayBufferOptions()) {}
  /// Throws ConfigError for options out of range.
  explicit ReplayBuffer(ReplayBufferOptions options);
  ReplayBuffer(const ReplayBuffer&) = delete;
  ReplayBuffer& operator=(const ReplayBuffer&) = delete;

  /// Adds a row and returns its id: 0, 1, 2, … in the order of addition. Throws DataError naming the field if the row
  /// is not like the first one; nothing is added then.
  int64_t add(const Batch& row);
  /// Adds the rows of a batch, one for each index of the first dimension, and returns the first one's id. Throws
  /// DataError as add() does.
  int64_t add_many(const Batch& rows);

  /// Draws rows with replacement. The batch has their fields, the field "ids", (batch_size) int64, and with
  /// `prioritized` the field "weights", (batch_size) float32; of rows without names, these follow the rows' tensors.
  /// Throws DataError if there are no rows, and ConfigError for a batch_size below 1.
  [[nodiscard]] Batch sample(int64_t batch_size);

  /// Sets the priorities of rows, such as their TD errors, whose sign does not matter. `ids`: (n) int64; `values`: (n)
  /// floating-point; both on any device. Rows that were replaced meanwhile are skipped. Throws ConfigError without
  /// `prioritized`, and DataError for shapes or types that differ, an id that was never given, or a value of nan or
  /// inf; no priority is changed then.
  void update_priorities(const at::Tensor& ids, const at::Tensor& values);
  /// Sets the weights' exponent, for a schedule from ReplayBufferOptions::beta to 1. Throws ConfigError outside [0, 1].
  void set_beta(double beta);

  /// Returns the number of rows in the buffer.
  [[nodiscard]] int64_t size() const;
  /// Returns the number of rows added so far, which is the next row's id.
  [[nodiscard]] int64_t added() const;
  [[nodiscard]] const ReplayBufferOptions& options() const { return options_; }

  /// Returns a copy of the rows and everything else that the next draws depend on.
  [[nodiscard]] State state_dict() const;
  /// Replaces rows, priorities and draws by saved ones. Throws CheckpointError, and changes nothing, for a state of a
  /// buffer with a different capacity or `prioritized`, or a damaged one.
  void load_state_dict(const State& saved);
  /// Returns the part of state_dict() that a draw changes, which is cheap; it has its own load function.
  [[nodiscard]] State draws_state() const;
  void load_draws_state(const State& saved);

 private:
  // One tensor of all rows, or of rows that are added.
  struct Column {
    std::string name = "";  // empty: the tensors have no names
    at::Tensor rows = {};   // (rows, …)
  };
  struct Rows {
    std::vector<Column> columns = {};  // (capacity, …) on the CPU; row `id` is at id % capacity
    int64_t added = 0;
    std::optional<SumTree> priorities = std::nullopt;  // p^alpha by position; unset without `prioritized`
    double max_priority = 1;                           // the highest p so far
    double beta = 0;
  };
  struct Draws {
    std::optional<uint64_t> seed = std::nullopt;  // unset before the first draw
    uint64_t count = 0;
  };

  int64_t insert(const std::string& where, const Batch& rows);
  [[nodiscard]] std::vector<Column> in_column_order(const std::string& where, const Batch& rows) const;
  [[nodiscard]] static int64_t count_rows(const std::string& where, const std::vector<Column>& added);
  void allocate(const std::vector<Column>& added);
  void check_like_first(const std::string& where, const std::vector<Column>& added) const;
  void write(const std::vector<Column>& added, int64_t count);
  [[nodiscard]] int64_t rows_held() const;
  [[nodiscard]] double next_uniform();
  [[nodiscard]] at::Tensor draw_positions(int64_t count);
  [[nodiscard]] at::Tensor ids_at(const at::Tensor& positions) const;
  [[nodiscard]] at::Tensor weights_at(const at::Tensor& positions) const;
  [[nodiscard]] double raised(double priority) const;
  void put_draws(State& state) const;
  [[nodiscard]] static Draws read_draws(const State& saved);
  [[nodiscard]] Rows read_rows(const State& saved) const;
  [[nodiscard]] SumTree read_priorities(const State& saved, int64_t held) const;

  const ReplayBufferOptions options_;
  mutable std::mutex mutex_;  // guards everything below
  Rows rows_;
  Draws draws_;
};

}  // namespace levin
