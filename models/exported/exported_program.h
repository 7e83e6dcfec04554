// A program that Python's torch.export has written (a .pt2 file), as a module of LibTorch that trains: its operators
// run one after another through the dispatcher, with autograd. No Python, no TorchScript, no compiler.
//
//   class Classifier : public levin::LightningModule {
//     std::shared_ptr<levin::ExportedProgram> net_ =
//         register_module("net", std::make_shared<levin::ExportedProgram>("net.pt2"));
//     at::Tensor training_step(const levin::Batch& batch) override {
//       return at::cross_entropy_loss(net_->forward({batch[0]}).at(0), batch[1]);
//     }
//   };
//
// Parameters and buffers have the names they have in Python ("layer1.0.conv1.weight"), within submodules of those
// names. train() and eval(), of the program or of one submodule, switch what they switch in Python: dropout, batch
// norm, the dropout of attention and of recurrent layers. Each module that Python calls is a submodule, and is called
// as by levin::call (core/module_call.h), which recomputation and placement need. See docs/exported_models.md.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "levin/core/weight_use.h"

namespace levin {

/// Options of ExportedProgram.
struct ExportedProgramOptions {
  /// Namespaces of operators that your program registers (TORCH_LIBRARY) and the file may call. Of "aten", a file may
  /// call what exports of models contain (docs/exported_models.md); with "aten" in this list, everything: only for
  /// files that you trust, because some operators can reach memory outside of their tensors.
  std::vector<std::string> operator_namespaces = {};
};

/// A trainable module that runs the operators of an exported program.
class ExportedProgram : public torch::nn::Module, public HasTiedWeights {
 public:
  /// Reads the file, whose sizes, offsets, checksums and references are all checked; throws Error that names the file
  /// and what is wrong with it, or lists all that the program needs and Levin does not have.
  explicit ExportedProgram(const std::string& path, const ExportedProgramOptions& options = {});
  ~ExportedProgram() override;

  /// Takes the inputs in the order of input_names(), and returns the outputs in the order of output_names(): what
  /// Python's forward returns, as a flat list, with numbers as tensors of shape (). Throws Error if an input has a
  /// shape that the program was not exported for. Threads may call it at the same time.
  [[nodiscard]] std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs);

  /// Names of forward's arguments in Python.
  [[nodiscard]] const std::vector<std::string>& input_names() const;
  /// Names of the graph's values that are returned.
  [[nodiscard]] const std::vector<std::string>& output_names() const;
  /// Second names of tied weights, each with the name under which the tensor is registered.
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& tied_names() const;
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> tied_weights() const override { return tied_names(); }
  /// Returns what the export left out and a training may miss, a sentence each; empty: nothing known.
  [[nodiscard]] const std::vector<std::string>& notes() const;

  using torch::nn::Module::to;
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;

 private:
  struct Parts;
  std::shared_ptr<Parts> parts_;
};

}  // namespace levin
