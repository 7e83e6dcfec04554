// Data sets of HDF5 files as data for training: a row of each is a sample.
//
//   data: {class_path: Hdf5Data, init_args: {path: train.h5, inputs: images, targets: labels, val_fraction: 0.1}}
//
// Values that are neither chunked nor compressed are mapped; others are read by one thread at a time.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/data/files/hdf5.h"
#include "levin/data/loading/dataset.h"
#include "levin/data/sets/row_module.h"

namespace levin {

/// Rows of several data sets of a file. Sample i holds row i of each, in the type and shape of the file.
class Hdf5Dataset final : public Dataset {
 public:
  /// `names` of data sets in the file. Throws DataError naming the one that cannot be used (data/files/hdf5.h) or has
  /// not as many rows as the first.
  Hdf5Dataset(const std::string& path, const std::vector<std::string>& names);

  [[nodiscard]] int64_t size() const override { return arrays_[0].size(); }
  [[nodiscard]] Batch get(int64_t index) const override;
  [[nodiscard]] bool has_get_batch() const override { return true; }
  [[nodiscard]] Batch get_batch(const at::Tensor& indices) const override;

 private:
  std::vector<Hdf5Rows> arrays_;
};

/// Options of Hdf5Data.
struct Hdf5DataOptions {
  std::string path = "";
  std::string inputs = "x";    // a data set, (n, …)
  std::string targets = "y";   // (n, …); "": batches of inputs alone
  std::string val_path = "";   // "": val_fraction of path
  std::string test_path = "";  // "": none
  int64_t batch_size = 32;
  double val_fraction = 0;  // of the rows of `path`, held out for validation
  int64_t split_seed = 42;  // which ones; independent of the run's seed
  int64_t num_workers = 0;
  bool shuffle = true;
  bool drop_last = false;
  EnumOption<ArrayDtype> inputs_dtype = ArrayDtype::automatic;
  EnumOption<ArrayDtype> targets_dtype = ArrayDtype::automatic;
  template <class = void>
  static auto fields() {
    using O = Hdf5DataOptions;
    return levin::fields(
        field("path", &O::path, "the file to train on").not_empty().ranks_may_differ(),
        field("inputs", &O::inputs, "the data set of the inputs, such as train/images, a sample in each row")
            .not_empty(),
        field("targets", &O::targets, "the data set of their targets, in the same order; \"\": none"),
        field("val_path", &O::val_path, "the file to validate on; \"\": val_fraction of path").ranks_may_differ(),
        field("test_path", &O::test_path, "the file to test and predict on; \"\": none").ranks_may_differ(),
        detail::row_fields<O>(),
        field(
            "inputs_dtype", &O::inputs_dtype,
            "auto: numbers with a fraction in the run's type (float32; float64 under 64-true), others as in the file"),
        field("targets_dtype", &O::targets_dtype, "the same, and with auto integers as int64, the type of classes"));
  }
};

/// Rows of HDF5 files. Batches: x (batch, …) and, with targets, y (batch, …), which rows to predict need not have.
/// setup() throws DataError as Hdf5Dataset does.
class Hdf5Data final : public detail::RowModule {
 public:
  using Options = Hdf5DataOptions;
  explicit Hdf5Data(Hdf5DataOptions options);

 private:
  [[nodiscard]] detail::RowFile open_train() const override;
  [[nodiscard]] detail::RowFile open_val() const override;
  [[nodiscard]] detail::RowFile open_test(bool may_lack_targets) const override;
  [[nodiscard]] detail::RowFile open(const std::string& path, bool may_lack_targets = false) const;

  Hdf5DataOptions options_;
};

}  // namespace levin
