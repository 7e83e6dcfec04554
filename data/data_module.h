// All the data of a task: where it comes from, how it is split and loaded. The trainer calls the hooks, in this order:
// prepare_data (one process of the run), setup (every process), the loaders, teardown.
//
//   class Toy : public levin::DataModule {
//     std::shared_ptr<levin::Loader> train_dataloader() override {
//       return levin::DataLoader(data_, {.batch_size = 32, .shuffle = true});
//     }
//   };
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/core/options/value.h"
#include "levin/core/state.h"
#include "levin/data/batch.h"
#include "levin/data/loader.h"

namespace levin {

/// The entry point of a run for which data are loaded.
enum class Stage { fit, validate, test, predict };

template <>
struct EnumNames<Stage> {
  static constexpr EnumName<Stage> names[] = {
      {"fit", Stage::fit}, {"validate", Stage::validate}, {"test", Stage::test}, {"predict", Stage::predict}};
};

/// The base of data modules. Each process has its own object and calls its hooks from the training thread. An exception
/// from a hook ends the run.
class DataModule : public Stateful {
 public:
  static const char* registry_name() { return "data module"; }

  /// Downloads and unpacks. Called on one process only, so it must not set members.
  virtual void prepare_data() {}
  /// Reads and splits. Called on every process.
  virtual void setup(Stage /*stage*/) {}
  virtual void teardown(Stage /*stage*/) {}

  virtual std::shared_ptr<Loader> train_dataloader() { return nullptr; }
  virtual Loaders val_dataloader() { return {}; }
  virtual Loaders test_dataloader() { return {}; }
  virtual Loaders predict_dataloader() { return {}; }

  /// Called with the batch as loaded, and (on_after_batch_transfer) with the batch on its device.
  virtual Batch on_before_batch_transfer(Batch batch, int64_t /*dataloader_idx*/) { return batch; }
  /// Unless overridden, the LightningModule's hook of this name is used.
  virtual Batch transfer_batch_to_device(Batch batch, at::Device, int64_t /*dataloader_idx*/) { return batch; }
  virtual Batch on_after_batch_transfer(Batch batch, int64_t /*dataloader_idx*/) { return batch; }

  /// Returns the class names in the order of their numbers, or nothing without classes or names. Prediction
  /// files name the predicted class. Called after setup and after teardown.
  [[nodiscard]] virtual std::vector<std::string> label_names() const { return {}; }
  /// Returns a prediction of predict_step as one string per sample, or nothing to show numbers. Called after teardown.
  /// By default returns the label_names of predicted classes, (batch) int64.
  virtual std::vector<std::string> prediction_text(const at::Tensor& prediction) const;

  /// Returns sentences for error messages about types: which types the data have and how to choose others. They begin
  /// with a space. Returns "" if there is no choice.
  [[nodiscard]] virtual std::string about_dtypes() const { return ""; }

  /// Returns the type of numbers read from files, which the trainer sets before prepare_data: float64 with precision
  /// 64-true, else float32.
  [[nodiscard]] at::ScalarType float_dtype() const { return float_dtype_; }
  void set_float_dtype(at::ScalarType dtype) { float_dtype_ = dtype; }

  virtual void on_exception(const std::exception& /*error*/) {}

  /// Stores the constructor's options: ranks compare them before the first step.
  template <HasFields Options>
  void save_hyperparameters(const Options& options) {
    hparams_ = write_options(options);
  }
  void save_hyperparameters(ConfigNode hparams) { hparams_ = std::move(hparams); }
  [[nodiscard]] const ConfigNode& hparams() const { return hparams_; }

  /// Returns the data module's state in checkpoints.
  [[nodiscard]] State state_dict() const override { return Stateful::state_dict(); }
  void load_state_dict(const State& saved) override { Stateful::load_state_dict(saved); }

 private:
  ConfigNode hparams_ = {};
  at::ScalarType float_dtype_ = at::kFloat;
};

/// Returns the names of the classes with these numbers, (batch) int64; a number without a name is written in digits.
[[nodiscard]] std::vector<std::string> class_texts(const at::Tensor& numbers, const std::vector<std::string>& names);

namespace detail {

/// Warns that predictions have no names of classes. `who`: the data module; `source`: where it reads the names unless a
/// checkpoint has them.
void warn_of_unknown_classes(const std::string& who, const std::string& source);

}  // namespace detail

/// Lightning's name.
using LightningDataModule = DataModule;

}  // namespace levin
