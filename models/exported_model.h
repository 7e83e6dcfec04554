// A program of Python's torch.export (a .pt2 file) as a model that a run file names:
//
//   model: {class_path: ExportedModule, init_args: {path: net.pt2, loss: cross_entropy}}
//
// A module of your own with other steps holds an ExportedProgram instead. See docs/exported_models.md.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/trainer/lightning_module.h"

namespace levin {

class ExportedProgram;

/// The loss of the program's output and the target, by PyTorch's functions. none: the output is the loss.
enum class ExportedLoss { cross_entropy, mse_loss, l1_loss, bce_with_logits, none };

template <>
struct EnumNames<ExportedLoss> {
  static constexpr EnumName<ExportedLoss> names[] = {{"cross_entropy", ExportedLoss::cross_entropy},
                                                     {"mse_loss", ExportedLoss::mse_loss},
                                                     {"l1_loss", ExportedLoss::l1_loss},
                                                     {"bce_with_logits", ExportedLoss::bce_with_logits},
                                                     {"none", ExportedLoss::none}};
};

/// Options of ExportedModule.
struct ExportedModuleOptions {
  std::string path = "";
  bool trust = false;
  EnumOption<ExportedLoss> loss = ExportedLoss::cross_entropy;
  std::vector<int64_t> inputs = {};
  int64_t target = -1;
  int64_t output = 0;
  double lr = 1e-3;
  double weight_decay = 0.01;

  template <class = void>
  static auto fields() {
    using O = ExportedModuleOptions;
    return levin::fields(
        field("path", &O::path, "the .pt2 file that torch.export.save or tools/export_model.py wrote").not_empty(),
        field(
            "trust", &O::trust,
            "true: the file may call operators that can reach memory outside of their tensors, and so do anything that "
            "you can"),
        field("loss", &O::loss, "loss of the output and the target; none: the output is the loss"),
        field("inputs", &O::inputs, "which tensors of a batch the program takes, in its order; []: all but the target"),
        field("target", &O::target, "which tensor of a batch is the target; -1: the last").min(-1),
        field("output", &O::output, "which of the program's outputs is compared, predicted, or the loss").min(0),
        field("lr", &O::lr, "AdamW's step size, unless the run has an optimizer").above(0.0),
        field("weight_decay", &O::weight_decay, "AdamW's weight decay").min(0.0));
  }
};

/// A module that trains an exported program. Logs train_loss, val_loss, test_loss, and val_acc and test_acc with
/// cross_entropy. Parameters have their names in Python, and so have submodules, which recompute and ModelParallel may
/// name. Steps throw Error if output and target do not fit the loss.
class ExportedModule : public LightningModule {
 public:
  using Options = ExportedModuleOptions;
  /// Throws Error that names the file and what is wrong with it.
  explicit ExportedModule(ExportedModuleOptions options);

  using LightningModule::predict_step;
  using LightningModule::test_step;
  using LightningModule::training_step;
  using LightningModule::validation_step;
  at::Tensor training_step(const Batch& batch) override;
  void validation_step(const Batch& batch) override { evaluate(batch, "val"); }
  void test_step(const Batch& batch) override { evaluate(batch, "test"); }
  /// Returns the output itself: logits with cross_entropy.
  at::Tensor predict_step(const Batch& batch) override;
  OptimizerConfig configure_optimizers() override;

  /// Names of inputs and outputs, notes about the export.
  [[nodiscard]] const ExportedProgram& program() const { return *program_; }

  void train(bool on = true) override;
  using LightningModule::to;
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;

 private:
  [[nodiscard]] size_t target_index(const Batch& batch) const;
  [[nodiscard]] at::Tensor output_of(const Batch& batch);
  [[nodiscard]] at::Tensor loss_of(const at::Tensor& output, const Batch& batch) const;
  void evaluate(const Batch& batch, const std::string& stage);

  ExportedModuleOptions options_;
  std::shared_ptr<ExportedProgram> program_;
};

}  // namespace levin
