// What data modules of arrays in files share: a training set of which a part may be held out, and one for the test.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/data/data_module.h"
#include "levin/data/loading/batching.h"
#include "levin/data/loading/dataset.h"

namespace levin {

/// The type in which a file's arrays are given to the model. automatic: numbers with a fraction in the type that the
/// run computes with (float64 under 64-true, else float32), integers of targets as int64, and all others as in the
/// file.
enum class ArrayDtype { automatic, file, float32, float64, int64 };
template <>
struct EnumNames<ArrayDtype> {
  static constexpr EnumName<ArrayDtype> names[] = {{"auto", ArrayDtype::automatic},
                                                   {"file", ArrayDtype::file},
                                                   {"float32", ArrayDtype::float32},
                                                   {"float64", ArrayDtype::float64},
                                                   {"int64", ArrayDtype::int64}};
};

namespace detail {

/// The options that data modules of rows share.
struct RowModuleOptions {
  int64_t batch_size = 32;
  double val_fraction = 0;  // of the training rows, without a validation file
  int64_t split_seed = 42;
  int64_t num_workers = 0;
  bool shuffle = true;
  bool drop_last = false;
  ArrayDtype inputs_dtype = ArrayDtype::automatic;
  ArrayDtype targets_dtype = ArrayDtype::automatic;
};

/// The rows of arrays, and what the arrays are called in messages.
struct RowFile {
  std::shared_ptr<Dataset> rows = nullptr;  // null: there are none
  std::vector<std::string> names = {};
};

/// The base of data modules of rows, which opens what a stage needs in setup() and closes it in teardown(). Loaders
/// asked for before setup() throw DataError.
class RowModule : public DataModule {
 public:
  void setup(Stage stage) final;
  void teardown(Stage stage) final;
  std::shared_ptr<Loader> train_dataloader() final;
  Loaders val_dataloader() final;
  Loaders test_dataloader() final;
  Loaders predict_dataloader() final { return test_dataloader(); }
  [[nodiscard]] std::string about_dtypes() const final;

 protected:
  /// `name`: of the class, for messages.
  RowModule(std::string name, RowModuleOptions options) : name_(std::move(name)), options_(options) {}

  [[nodiscard]] virtual RowFile open_train() const = 0;
  [[nodiscard]] virtual RowFile open_val() const = 0;
  /// `may_lack_targets`: to predict.
  [[nodiscard]] virtual RowFile open_test(bool may_lack_targets) const = 0;

 private:
  [[nodiscard]] std::shared_ptr<Dataset> in_dtypes(const RowFile& file);
  [[nodiscard]] std::shared_ptr<Loader> loader(const std::shared_ptr<Dataset>& rows, const at::Tensor& part,
                                               bool is_training) const;

  std::string name_;
  RowModuleOptions options_;
  std::shared_ptr<Dataset> train_ = nullptr;
  std::shared_ptr<Dataset> val_ = nullptr;
  std::shared_ptr<Dataset> test_ = nullptr;
  bool has_test_ = true;
  std::string dtypes_ = "";     // of the arrays in the files that were opened last
  at::Tensor train_part_ = {};  // (n) int64, of train_; undefined: all
  at::Tensor val_part_ = {};    // (n) int64, of val_; undefined: all
};

}  // namespace detail

}  // namespace levin
