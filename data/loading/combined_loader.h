// Several loaders as one, for a step that uses data of several kinds at once: labelled and unlabelled, or of two tasks.
//
//   std::shared_ptr<levin::Loader> train_dataloader() override {
//     return levin::CombinedLoader({labelled_, unlabelled_}, {.mode = "min_size"});
//   }
//   torch::Tensor training_step(const levin::Batch& batch) override {
//     auto [x, y, u] = batch.unpack<3>();  // x and y of the first loader, u of the second
//
// A position in the pass is one in each loader, so a run that resumes inside an epoch continues with the same batches.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/core/options/value.h"
#include "levin/data/batch.h"
#include "levin/data/loader.h"

namespace levin {

/// When a pass ends, and what a loader that has ended before gives meanwhile. The names are Lightning's.
enum class CombinedMode { min_size, max_size, max_size_cycle, sequential };

template <>
struct EnumNames<CombinedMode> {
  static constexpr EnumName<CombinedMode> names[] = {{"min_size", CombinedMode::min_size},
                                                     {"max_size", CombinedMode::max_size},
                                                     {"max_size_cycle", CombinedMode::max_size_cycle},
                                                     {"sequential", CombinedMode::sequential}};
};

/// Options of CombinedLoader.
struct CombinedLoaderOptions {
  EnumOption<CombinedMode> mode = CombinedMode::max_size_cycle;
  std::vector<std::string> names = {};  // of the loaders, in their order; none: fields keep their names
  template <class = void>
  static auto fields() {
    using O = CombinedLoaderOptions;
    return levin::fields(field("mode", &O::mode,
                               "min_size: until the shortest loader ends; max_size: until the longest ends, the others "
                               "giving tensors without rows then; max_size_cycle: the others beginning anew; "
                               "sequential: one after another"),
                         field("names", &O::names,
                               "of the loaders, in order: field x of loader a is a.x; none: fields keep their names"));
  }
};

/// A batch holds the tensors of all loaders' batches in the loaders' order, with their fields' names, or as
/// "loader.field" with the option `names` (tensor 0 without a name as "loader.0"); without it, names that an earlier
/// loader gives too are left out, and these tensors are found by their places. Its samples are the first one's. With
/// `sequential` it is the batch of one loader, see loader_of.
///
///   min_size        as many batches as the shortest loader; it alone takes loaders of unknown length
///   max_size        as many as the longest, which must come first, since a batch's samples are its; the tensors of a
///                   loader that has ended have 0 rows
///   max_size_cycle  as many as the longest; the others begin a new pass, in a new order, as often as necessary
///   sequential      all batches of the first loader, then all of the second, …
class CombinedLoader final : public Loader {
 public:
  using Options = CombinedLoaderOptions;

  /// Throws ConfigError without a loader, for names that are not one for each loader, and for a loader that is given
  /// twice, except with `sequential`.
  explicit CombinedLoader(Loaders loaders, CombinedLoaderOptions options = {});
  CombinedLoader(CombinedLoader&&) = default;
  /// For hooks: return CombinedLoader({DataLoader(a), DataLoader(b)});
  operator std::shared_ptr<Loader>() &&;  // NOLINT(google-explicit-constructor)

  /// Throws ConfigError if a loader's length is not known, or with max_size another loader is longer than the first.
  void start(int64_t epoch, int64_t first_batch = 0) override;
  /// Throws what the loaders throw, and DataError, without `names`, for a field that an earlier loader gives too if the
  /// later batch holds more than tensors.
  bool next(Batch& batch) override;
  void stop() override;
  [[nodiscard]] std::optional<int64_t> num_batches() const override;
  void use_sequential_order() override;
  [[nodiscard]] bool may_be_read_ahead() const override;
  /// Returns the states of the loaders that have one.
  [[nodiscard]] State state_dict() const override;
  void add_to_checkpoint(State& state) const override;
  void load_state_dict(const State& state) override;
  bool shard(int64_t rank, int64_t world_size, bool padded) override;
  void pin_memory(bool pins) override;
  /// Has an effect only with `sequential`, where each batch is from one loader.
  void identify_samples(bool identifies) override;
  [[nodiscard]] ConfigNode written_options() const override;
  [[nodiscard]] int64_t num_workers() const override;

  [[nodiscard]] const Loaders& loaders() const { return loaders_; }
  /// Returns the index of the loader that batch `batch_idx` comes from, with `sequential`.
  [[nodiscard]] size_t loader_of(int64_t batch_idx) const;

 private:
  [[nodiscard]] int64_t length(size_t k) const;
  void check_different() const;
  void check_lengths() const;
  void start_loader(size_t k, int64_t position);
  bool next_of(size_t k, Batch& batch);
  bool next_in_sequence(Batch& batch);
  void append(Batch& whole, const Batch& part, size_t k) const;
  const Batch& without_rows(size_t k);

  Loaders loaders_;
  CombinedLoaderOptions options_;
  std::vector<Batch> empty_;  // of max_size: each loader's batch without rows, once it is known
  int64_t epoch_ = 0;
  int64_t started_at_ = 0;  // the batch that start() named
  int64_t position_ = 0;    // next batch of the pass
  bool running_ = false;
};

}  // namespace levin
