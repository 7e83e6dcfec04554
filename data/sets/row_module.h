// What data modules of arrays in files share: a training set of which a part may be held out, and one for the test.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "levin/data/data_module.h"
#include "levin/data/loading/dataset.h"

namespace levin::detail {

struct RowModuleOptions {
  int64_t batch_size = 32;
  double val_fraction = 0;  // of the training rows, if there are no others to validate on
  int64_t split_seed = 42;
  int64_t num_workers = 0;
  bool shuffle = true;
  bool drop_last = false;
};

/// Opens what a stage needs in setup(), closes it in teardown().
class RowModule : public DataModule {
 public:
  void setup(Stage stage) final;
  void teardown(Stage stage) final;
  std::shared_ptr<Loader> train_dataloader() final;
  Loaders val_dataloader() final;
  Loaders test_dataloader() final;
  Loaders predict_dataloader() final { return test_dataloader(); }

 protected:
  /// `name`: of the class, for messages.
  RowModule(std::string name, RowModuleOptions options) : name_(std::move(name)), options_(options) {}

  [[nodiscard]] virtual std::shared_ptr<Dataset> open_train() const = 0;
  /// Null: there is none.
  [[nodiscard]] virtual std::shared_ptr<Dataset> open_val() const = 0;
  [[nodiscard]] virtual std::shared_ptr<Dataset> open_test() const = 0;

 private:
  [[nodiscard]] std::shared_ptr<Loader> loader(const std::shared_ptr<Dataset>& rows, const at::Tensor& part,
                                               bool is_training) const;

  std::string name_;
  RowModuleOptions options_;
  std::shared_ptr<Dataset> train_ = nullptr;
  std::shared_ptr<Dataset> val_ = nullptr;
  std::shared_ptr<Dataset> test_ = nullptr;
  bool has_test_ = true;
  at::Tensor train_part_ = {};  // (n) int64, of train_; undefined: all
  at::Tensor val_part_ = {};    // (n) int64, of val_; undefined: all
};

}  // namespace levin::detail
