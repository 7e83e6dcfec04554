// Trains a PyTorch module whose step tools/compile_step.py compiled ahead of time: docs/compiled_steps.md.
//
//   model:
//     class_path: CompiledModule
//     init_args: {path: net.pt2, trust: true, lr: 0.001}
//
// Forward, loss and backward are one call of native code. All around it is as for other modules: the parameters are the
// Python module's, by its names, and the loss has a backward that gives them their gradients.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/trainer/lightning_module.h"

namespace levin {

class CompiledLibrary;
class StepFile;
struct CompiledGraph;

/// Options of CompiledModule.
struct CompiledModuleOptions {
  std::string path = "";
  bool trust = false;
  double lr = 1e-3;
  double weight_decay = 0.01;

  template <class = void>
  static auto fields() {
    using O = CompiledModuleOptions;
    return levin::fields(
        field("path", &O::path, "the file that tools/compile_step.py wrote").not_empty().ranks_may_differ(),
        field("trust", &O::trust,
              "true: the file's native code may run in this process; it can do anything that you can"),
        field("lr", &O::lr, "AdamW's step size").above(0.0),
        field("weight_decay", &O::weight_decay, "AdamW's weight decay").min(0.0));
  }
};

/// A module whose training and evaluation steps are native code, for CPUs and precision 32-true. Steps throw Error for
/// a batch whose shapes, types or device differ from what the step was compiled for.
class CompiledModule final : public LightningModule {
 public:
  using Options = CompiledModuleOptions;
  /// Reads the weights and loads the code. Throws Error naming the file, what does not fit, and a remedy.
  explicit CompiledModule(CompiledModuleOptions options);
  ~CompiledModule() override;

  /// Returns the evaluation's prediction for the module's first input; the target, if the step has one, is taken as
  /// zeros.
  at::Tensor forward(const at::Tensor& input) override;
  /// `batch`: the module's inputs, then the target if the loss has one. Logs train_loss.
  at::Tensor training_step(const Batch& batch) override;
  /// Logs val_loss, and val_acc for a cross entropy over classes.
  void validation_step(const Batch& batch) override { evaluate(batch, "val"); }
  /// Logs test_loss, and test_acc for a cross entropy over classes.
  void test_step(const Batch& batch) override { evaluate(batch, "test"); }
  at::Tensor predict_step(const Batch& batch) override;
  OptimizerConfig configure_optimizers() override;
  /// Steps throw ConfigError for a module with other parameters than the file's: LoRA's adapters have no effect on code
  /// that was compiled without them. Here: for record_steps: true; its recorder sees operators, and a compiled step has
  /// none.
  void setup(Stage stage) override;

 private:
  void register_tensors();
  void check_batch(const Batch& batch, const CompiledGraph& graph, const char* step) const;
  void check_tensors(const char* step) const;
  void check_nothing_added(const char* step);
  [[nodiscard]] std::vector<at::Tensor> run(CompiledLibrary& library, const CompiledGraph& graph, const Batch& batch,
                                            const char* step);
  void keep_apart(std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs);
  [[nodiscard]] at::Tensor prediction_for(Batch inputs, const char* step);
  void evaluate(const Batch& batch, const std::string& stage);

  CompiledModuleOptions options_;
  std::shared_ptr<StepFile> file_;
  std::shared_ptr<CompiledLibrary> training_, evaluation_;
  std::map<std::string, at::Tensor> tensors_ = {};  // parameters, buffers and constants
  std::set<size_t> shared_ = {};  // outputs of the training graph that share memory with another tensor
  bool knows_shared_ = false;
  bool knows_names_ = false;  // that the module has the file's parameters alone, in this entry point
};

}  // namespace levin
