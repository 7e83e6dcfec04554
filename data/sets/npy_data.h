// NumPy arrays in .npy files as data for training: a row of each file is a sample. The files are mapped, not read: they
// may be larger than the memory, and processes on a machine share what is in it.
//
//   data: {class_path: NpyData, init_args: {inputs: x.npy, targets: y.npy, val_fraction: 0.1}}
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/data/loading/dataset.h"
#include "levin/data/sets/row_module.h"

namespace levin {

/// Rows of several files. Sample i holds row i of each, in the type and shape of the file.
class NpyDataset final : public Dataset {
 public:
  /// Throws DataError naming the file if one cannot be mapped (data/files/npy.h), has no rows or not as many as the
  /// first.
  explicit NpyDataset(const std::vector<std::string>& paths);

  [[nodiscard]] int64_t size() const override { return arrays_[0].size(0); }
  [[nodiscard]] Batch get(int64_t index) const override;
  [[nodiscard]] bool has_get_batch() const override { return true; }
  /// Copies, so that a worker waits for the disk, not the training.
  [[nodiscard]] Batch get_batch(const at::Tensor& indices) const override;

 private:
  std::vector<at::Tensor> arrays_;
};

/// Options of NpyData.
struct NpyDataOptions {
  std::string inputs = "";   // (n, …)
  std::string targets = "";  // (n, …); "": batches of inputs alone
  std::string val_inputs = "";
  std::string val_targets = "";
  std::string test_inputs = "";
  std::string test_targets = "";
  int64_t batch_size = 32;
  double val_fraction = 0;  // of the rows of `inputs`, held out for validation
  int64_t split_seed = 42;  // which ones; independent of the run's seed
  int64_t num_workers = 0;
  bool shuffle = true;
  bool drop_last = false;
  EnumOption<ArrayDtype> inputs_dtype = ArrayDtype::automatic;
  EnumOption<ArrayDtype> targets_dtype = ArrayDtype::automatic;
  template <class = void>
  static auto fields() {
    using O = NpyDataOptions;
    return levin::fields(
        field("inputs", &O::inputs, "the .npy file to train on, a sample in each row").not_empty().ranks_may_differ(),
        field("targets", &O::targets, "the .npy file of their targets, in the same order; \"\": none")
            .ranks_may_differ(),
        field("val_inputs", &O::val_inputs, "to validate on; \"\": val_fraction of inputs").ranks_may_differ(),
        field("val_targets", &O::val_targets, "of val_inputs").ranks_may_differ(),
        field("test_inputs", &O::test_inputs, "to test and predict on; \"\": none").ranks_may_differ(),
        field("test_targets", &O::test_targets, "of test_inputs").ranks_may_differ(), detail::row_fields<O>(),
        field(
            "inputs_dtype", &O::inputs_dtype,
            "auto: numbers with a fraction in the run's type (float32; float64 under 64-true), others as in the file"),
        field("targets_dtype", &O::targets_dtype, "the same, and with auto integers as int64, the type of classes"));
  }
};

/// Rows of .npy files. Batches: x (batch, …) and, with targets, y (batch, …), which rows to predict need not have.
/// setup() throws DataError as NpyDataset does, and ConfigError if only some inputs have targets.
class NpyData final : public detail::RowModule {
 public:
  using Options = NpyDataOptions;
  explicit NpyData(NpyDataOptions options);

 private:
  [[nodiscard]] detail::RowFile open_train() const override;
  [[nodiscard]] detail::RowFile open_val() const override;
  [[nodiscard]] detail::RowFile open_test(bool may_lack_targets) const override;
  [[nodiscard]] detail::RowFile open(const std::string& inputs, const std::string& targets,
                                     bool may_lack_targets = false) const;

  NpyDataOptions options_;
};

}  // namespace levin
