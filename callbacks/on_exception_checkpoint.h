// Saves the state of training when it fails, so that it can continue from the failed batch.
//
//   .callbacks = {levin::OnExceptionCheckpoint({.dirpath = "runs/a"})}      // then fit(…, "runs/a/on_exception.ckpt")
//
// It counts as a checkpoint callback: add a ModelCheckpoint for regular ones. The file is removed when a later fit in
// the same folder succeeds.
#pragma once

#include <string>

#include "levin/core/options/fields.h"
#include "levin/trainer/checkpoint_callback.h"

namespace levin {

/// Options of OnExceptionCheckpoint.
struct OnExceptionCheckpointOptions {
  std::string dirpath = "";               // required
  std::string filename = "on_exception";  // without .ckpt

  template <class = void>
  static auto fields() {
    using O = OnExceptionCheckpointOptions;
    return levin::fields(field("dirpath", &O::dirpath, "the folder to save in").not_empty(),
                         field("filename", &O::filename, "the file's name, without .ckpt").not_empty());
  }
};

/// A callback that saves a checkpoint if an exception ends training. Every rank must reach it; rank 0 writes. A failure
/// to save is logged, and the exception is rethrown. The constructor throws ConfigError for a filename outside dirpath.
class OnExceptionCheckpoint final : public Checkpoint {
 public:
  using Options = OnExceptionCheckpointOptions;
  explicit OnExceptionCheckpoint(OnExceptionCheckpointOptions options);

  void setup(Trainer&, LightningModule&, Stage) override;
  void on_train_start(Trainer&, LightningModule&) override { training_ = true; }
  void on_train_end(Trainer&, LightningModule&) override { training_ = false; }
  void on_fit_end(Trainer& trainer, LightningModule&) override;
  void on_exception(Trainer& trainer, LightningModule&, const std::exception&) override;

  [[nodiscard]] std::string checkpoint_path(Trainer&, const std::string& which) override;

  /// Returns the file it saves to.
  [[nodiscard]] std::string ckpt_path() const;

 private:
  OnExceptionCheckpointOptions options_;
  bool training_ = false;
};

}  // namespace levin
