#include "levin/models/exported_model.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/mse_loss.h>

#include <algorithm>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/process/log.h"
#include "levin/core/tensors.h"
#include "levin/models/exported/exported_program.h"
#include "levin/models/loss_type.h"
#include "levin/optim/adam.h"
#include "levin/trainer/param_groups.h"

namespace levin {

namespace {

// Logits (batch, time, classes) with targets (batch, time), a language model's, as cross_entropy takes them: classes
// second.
at::Tensor with_classes_second(const at::Tensor& logits, const at::Tensor& target) {
  const bool is_sequence =
      logits.dim() == 3 && target.dim() == 2 && logits.size(1) == target.size(1) && logits.size(2) != target.size(1);
  return is_sequence ? logits.transpose(1, 2) : logits;
}

ExportedProgramOptions operators_of(const ExportedModuleOptions& options) {
  return options.trust ? ExportedProgramOptions{.operator_namespaces = {"aten"}} : ExportedProgramOptions{};
}

void check_same_shape(const at::Tensor& output, const at::Tensor& target, const std::string& loss) {
  if (output.sizes() == target.sizes()) return;
  throw Error("ExportedModule: " + loss + " compares tensors of one shape; the output has " + c10::str(output.sizes()) +
              ", the target " + c10::str(target.sizes()) + ". Reshape one of them where the model is exported.");
}

}  // namespace

ExportedModule::ExportedModule(ExportedModuleOptions options)
    : options_(checked(std::move(options), "ExportedModuleOptions")),
      program_(std::make_shared<ExportedProgram>(options_.path, operators_of(options_))) {
  const size_t outputs = program_->output_names().size();
  if (static_cast<size_t>(options_.output) >= outputs) {
    throw Error("ExportedModule: output is " + std::to_string(options_.output) + ", and " + options_.path + " has " +
                std::to_string(outputs) + " outputs: " + cut_text(join(program_->output_names()), 400) + ".");
  }
  // The program's parts are this module's own, so that their names are those in Python.
  for (const auto& item : program_->named_parameters(/*recurse=*/false)) {
    register_parameter(item.key(), item.value(), item.value().requires_grad());
  }
  for (const auto& item : program_->named_buffers(/*recurse=*/false)) register_buffer(item.key(), item.value());
  for (const auto& item : program_->named_children()) register_module(item.key(), item.value());
  for (const std::string& note : program_->notes()) log::warn("{}: {}", options_.path, note);
  save_hyperparameters(options_);
}

void ExportedModule::train(bool on) {
  LightningModule::train(on);
  program_->train(on);
}

void ExportedModule::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  LightningModule::to(device, dtype, non_blocking);
  program_->to(dtype, non_blocking);
}

void ExportedModule::to(torch::Dtype dtype, bool non_blocking) {
  LightningModule::to(dtype, non_blocking);
  program_->to(dtype, non_blocking);
}

size_t ExportedModule::target_index(const Batch& batch) const {
  return options_.target < 0 ? batch.count() - 1 : static_cast<size_t>(options_.target);
}

at::Tensor ExportedModule::output_of(const Batch& batch) {
  std::vector<at::Tensor> inputs;
  for (const int64_t index : options_.inputs) {
    if (index < 0)
      throw Error("ExportedModule: inputs has " + std::to_string(index) + "; count the batch's tensors from 0.");
    inputs.push_back(batch[static_cast<size_t>(index)]);
  }
  const size_t wanted = program_->input_names().size();
  const bool has_target = options_.loss != ExportedLoss::none && batch.count() > wanted;
  for (size_t k = 0; k < batch.count() && options_.inputs.empty(); ++k) {
    if (!has_target || k != target_index(batch)) inputs.push_back(batch[k]);
  }
  const std::vector<at::Tensor> outputs = program_->forward(inputs);
  const auto wanted_output = static_cast<size_t>(options_.output);
  if (wanted_output < outputs.size()) return outputs[wanted_output];
  throw Error("ExportedModule: output is " + std::to_string(options_.output) + ", and in evaluation " + options_.path +
              " has " + count_of(static_cast<int64_t>(outputs.size()), "output") +
              ", fewer than in training. Export a model whose prediction is the same output in both modes.");
}

at::Tensor ExportedModule::loss_of(const at::Tensor& output, const Batch& batch) const {
  if (options_.loss == ExportedLoss::none) {
    if (output.dim() == 0) return output;
    throw Error("ExportedModule: loss is none, so the program's output must be the loss, a scalar; its shape is " +
                c10::str(output.sizes()) + ". Choose a loss, or export a model that returns one.");
  }
  const at::Tensor& target = batch[target_index(batch)];
  const at::ScalarType type = loss_type(output, target);
  const at::Tensor predicted = output.to(type);
  if (options_.loss == ExportedLoss::cross_entropy) {
    const at::Tensor wanted = target.is_floating_point() ? target.to(type) : target;
    return at::cross_entropy_loss(with_classes_second(predicted, wanted), wanted);
  }
  check_same_shape(output, target, enum_name(options_.loss));
  const at::Tensor wanted = target.to(type);
  if (options_.loss == ExportedLoss::mse_loss) return at::mse_loss(predicted, wanted);
  if (options_.loss == ExportedLoss::l1_loss) return at::l1_loss(predicted, wanted);
  return at::binary_cross_entropy_with_logits(predicted, wanted);
}

at::Tensor ExportedModule::training_step(const Batch& batch) {
  at::Tensor loss = loss_of(output_of(batch), batch);
  log("train_loss", loss, {.prog_bar = true});
  return loss;
}

void ExportedModule::evaluate(const Batch& batch, const std::string& stage) {
  const at::Tensor output = output_of(batch);
  log(stage + "_loss", loss_of(output, batch), {.prog_bar = true, .sync_dist = true});
  if (options_.loss != ExportedLoss::cross_entropy) return;
  const at::Tensor& target = batch[target_index(batch)];
  if (target.is_floating_point()) return;  // probabilities
  const at::Tensor predicted = with_classes_second(output, target).argmax(1);
  log(stage + "_acc", predicted.eq(target).to(at::kFloat).mean(), {.prog_bar = true, .sync_dist = true});
}

at::Tensor ExportedModule::predict_step(const Batch& batch) {
  return output_of(batch);
}

OptimizerConfig ExportedModule::configure_optimizers() {
  return AdamW(param_groups(*this), {.lr = options_.lr, .weight_decay = options_.weight_decay});
}

}  // namespace levin
