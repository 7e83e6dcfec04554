#include "levin/models/compiled_module.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/tensors.h"
#include "levin/models/compiled/step_file.h"
#include "levin/optim/adam.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

const std::string kWho = "CompiledModule: ";

// The submodule that holds a tensor of this Python name ("net.0.weight" is in "net.0"), made where it is missing.
torch::nn::Module& holder_of(torch::nn::Module& root, const std::string& name) {
  torch::nn::Module* at = &root;
  size_t begin = 0;
  for (size_t dot = name.find('.'); dot != std::string::npos; begin = dot + 1, dot = name.find('.', begin)) {
    const std::string part = name.substr(begin, dot - begin);
    if (!at->named_children().contains(part)) at->register_module(part, std::make_shared<torch::nn::Module>(part));
    at = at->named_children()[part].get();
  }
  return *at;
}

std::string own_name(const std::string& name) {
  return name.substr(name.rfind('.') + 1);
}

// The outputs by their meaning.
struct StepResults {
  at::Tensor loss;
  at::Tensor prediction;
};

StepResults results_of(const CompiledGraph& graph, const std::vector<at::Tensor>& outputs) {
  StepResults results;
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (graph.outputs[k].kind == "loss") results.loss = outputs[k];
    if (graph.outputs[k].kind == "prediction") results.prediction = outputs[k];
  }
  return results;
}

// A recorded step sees operators, and would replay everything around the compiled code, but not the code itself.
// Reading a number on the host makes recording impossible, so that the step runs eagerly.
void keep_off_recordings(const at::Tensor& loss) {
  (void)loss.item();
}

}  // namespace

CompiledModule::CompiledModule(CompiledModuleOptions options)
    : options_(checked(std::move(options), "CompiledModuleOptions")), file_(std::make_shared<StepFile>(options_.path)) {
  check_compiled_for(file_->manifest(), file_->path(), read_file("/proc/cpuinfo"));
  if (!options_.trust) {
    throw Error(kWho + file_->path() +
                " holds native code, which can do anything that you can do on this machine. If you compiled it "
                "yourself, or trust "
                "who did, set trust: true.");
  }
  save_hyperparameters(options_);
  register_tensors();
  training_ = file_->load("training");
  evaluation_ = file_->load("evaluation");
}

CompiledModule::~CompiledModule() = default;

void CompiledModule::register_tensors() {
  tensors_ = file_->read_weights();
  const StepManifest& manifest = file_->manifest();
  for (const CompiledTensor& one : manifest.parameters) {
    at::Tensor& tensor = tensors_.at(one.name);
    tensor = holder_of(*this, one.name).register_parameter(own_name(one.name), tensor, one.requires_grad);
  }
  for (const CompiledTensor& one : manifest.buffers) {
    at::Tensor& tensor = tensors_.at(one.name);
    tensor = holder_of(*this, one.name).register_buffer(own_name(one.name), tensor);
  }
}

void CompiledModule::setup(Stage) {
  knows_names_ = false;
  if (has_trainer() && trainer().plan().record_steps == RecordSteps::yes) {
    throw ConfigError(
        "TrainerOptions.record_steps: a compiled step has no operators that could be recorded; it is one "
        "call already. Turn record_steps off for CompiledModule.");
  }
}

void CompiledModule::check_batch(const Batch& batch, const CompiledGraph& graph, const char* step) const {
  const auto& wanted = file_->manifest().batch;
  const std::string where = kWho + step + ": ";
  if (batch.count() != wanted.size()) {
    throw Error(where + "the batch has " + std::to_string(batch.count()) + " tensors, and " + file_->path() +
                " was compiled for " + std::to_string(wanted.size()) +
                ": the module's inputs, and the target if its loss has one.");
  }
  for (size_t k = 0; k < wanted.size(); ++k) {
    const at::Tensor& tensor = batch[k];
    const std::string name = where + "batch[" + std::to_string(k) + "]";
    if (!tensor.device().is_cpu()) {
      throw Error(name + " is on " + tensor.device().str() + ", and compiled steps run on CPUs. Set accelerator: cpu.");
    }
    if (tensor.scalar_type() != wanted[k].dtype) {
      throw Error(name + " is " + c10::toString(tensor.scalar_type()) + ", and " + file_->path() +
                  " was compiled for " + c10::toString(wanted[k].dtype) +
                  ". Convert it, or compile the step for this type (--input SIZES:TYPE).");
    }
    std::vector<int64_t> shape = wanted[k].shape;
    if (graph.dynamic_batch && !shape.empty()) shape[0] = batch.size();
    if (tensor.sizes() == at::IntArrayRef(shape) && tensor.numel() > 0) continue;
    const bool only_batch = tensor.dim() > 0 && tensor.sizes().slice(1) == at::IntArrayRef(shape).slice(1);
    throw Error(name + " has shape " + shape_text(tensor.sizes()) + ", and " + file_->path() + " was compiled for " +
                shape_text(shape) +
                (only_batch ? ". Set drop_last: true if this is a smaller last batch, or compile the step with "
                              "--dynamic-batch."
                            : ". Compile the step for this shape (--input)."));
  }
}

void CompiledModule::check_nothing_added(const char* step) {
  if (std::exchange(knows_names_, true)) return;
  for (const auto& item : named_parameters()) {
    if (tensors_.contains(item.key())) continue;
    throw ConfigError(kWho + step + ": the module has the parameter " + item.key() + ", and " + file_->path() +
                      " was compiled without it, so that training it would have no effect. A compiled step cannot be "
                      "adapted with LoRA: leave the callback out, or train the model as an ExportedModule.");
  }
}

// The code reads memory by the types and sizes it was compiled for: a precision or a strategy may have changed either.
void CompiledModule::check_tensors(const char* step) const {
  const StepManifest& manifest = file_->manifest();
  for (const auto* all : {&manifest.parameters, &manifest.buffers}) {
    for (const CompiledTensor& wanted : *all) {
      const at::Tensor& tensor = tensors_.at(wanted.name);
      if (tensor.scalar_type() == wanted.dtype && tensor.sizes() == at::IntArrayRef(wanted.shape) &&
          tensor.device().is_cpu()) {
        continue;
      }
      throw Error(
          kWho + step + ": " + wanted.name + " is " + c10::toString(tensor.scalar_type()) + " of shape " +
          shape_text(tensor.sizes()) + " on " + tensor.device().str() + ", and " + file_->path() +
          " was compiled for " + c10::toString(wanted.dtype) + " of shape " + shape_text(wanted.shape) +
          " on cpu. Set precision: 32-true, accelerator: cpu, and a strategy that leaves weights whole on every "
          "rank (single_device, ddp).");
    }
  }
}

std::vector<at::Tensor> CompiledModule::run(CompiledLibrary& library, const CompiledGraph& graph, const Batch& batch,
                                            const char* step) {
  if (at::autocast::is_autocast_enabled(at::kCPU)) {
    throw Error(kWho + step +
                " runs under the autocast of a mixed precision, which compiled code does not see. Set "
                "precision: 32-true.");
  }
  check_nothing_added(step);
  check_tensors(step);
  check_batch(batch, graph, step);
  std::vector<at::Tensor> inputs;
  inputs.reserve(graph.inputs.size());
  for (const CompiledSlot& slot : graph.inputs) {
    const at::Tensor& tensor = slot.kind == "batch" ? batch[slot.index] : tensors_.at(slot.name);
    inputs.push_back(tensor.is_contiguous() ? tensor.detach() : tensor.detach().contiguous());
  }
  return library.run(inputs);
}

// Two outputs of a graph may be one memory, and an output an input's: a gradient that is scaled in place must be alone.
void CompiledModule::keep_apart(std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs) {
  if (!knows_shared_) {
    std::set<const void*> seen;
    for (const at::Tensor& input : inputs) seen.insert(input.storage().data());
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (!seen.insert(outputs[k].storage().data()).second && outputs[k].numel() > 0) shared_.insert(k);
    }
    knows_shared_ = true;
  }
  for (const size_t k : shared_) outputs[k] = outputs[k].clone();
}

at::Tensor CompiledModule::training_step(const Batch& batch) {
  const CompiledGraph& graph = file_->manifest().training;
  std::vector<at::Tensor> parameters, gradients;
  at::Tensor loss;
  {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> outputs = run(*training_, graph, batch, "training_step");
    keep_apart(outputs, batch.tensors);
    for (size_t k = 0; k < outputs.size(); ++k) {
      const CompiledSlot& slot = graph.outputs[k];
      if (slot.kind == "loss") loss = std::move(outputs[k]);
      if (slot.kind == "buffer") tensors_.at(slot.name).copy_(outputs[k]);
      if (slot.kind != "gradient") continue;
      parameters.push_back(tensors_.at(slot.name));
      gradients.push_back(std::move(outputs[k]));
    }
    outputs.clear();
    keep_off_recordings(loss);
  }
  if (at::GradMode::is_enabled()) attach_gradients(loss, parameters, std::move(gradients));
  log("train_loss", loss, {.prog_bar = true});
  return loss;
}

void CompiledModule::evaluate(const Batch& batch, const std::string& stage) {
  const at::NoGradGuard no_grad;
  const CompiledGraph& graph = file_->manifest().evaluation;
  const auto outputs = run(*evaluation_, graph, batch, (stage == "val" ? "validation_step" : "test_step"));
  const StepResults results = results_of(graph, outputs);
  keep_off_recordings(results.loss);
  log(stage + "_loss", results.loss, {.prog_bar = true, .sync_dist = true});
  const at::Tensor& target = batch[batch.count() - 1];
  if (file_->manifest().loss == "cross_entropy" && results.prediction.defined() && results.prediction.dim() > 1 &&
      target.scalar_type() == at::kLong) {
    log(stage + "_acc", (results.prediction.argmax(1) == target).to(at::kFloat).mean(),
        {.prog_bar = true, .sync_dist = true});
  }
}

at::Tensor CompiledModule::prediction_for(Batch inputs, const char* step) {
  const at::NoGradGuard no_grad;
  const StepManifest& manifest = file_->manifest();
  const bool has_target = manifest.loss != "none";
  if (has_target && inputs.count() + 1 == manifest.batch.size()) {
    std::vector<int64_t> shape = manifest.batch.back().shape;
    if (manifest.evaluation.dynamic_batch && !shape.empty()) shape[0] = inputs.size();
    inputs.tensors.push_back(at::zeros(shape, at::TensorOptions(manifest.batch.back().dtype)));
  }
  const auto outputs = run(*evaluation_, manifest.evaluation, inputs, step);
  const StepResults results = results_of(manifest.evaluation, outputs);
  keep_off_recordings(results.loss);
  if (!results.prediction.defined()) {
    throw Error(kWho + file_->path() +
                " has no prediction, because the Python module returns its loss (--loss none). "
                "Compile it with a --loss, and a forward that returns the prediction.");
  }
  return results.prediction;
}

at::Tensor CompiledModule::forward(const at::Tensor& input) {
  return prediction_for(Batch({input}), "forward");
}

at::Tensor CompiledModule::predict_step(const Batch& batch) {
  return prediction_for(batch, "predict_step");
}

OptimizerConfig CompiledModule::configure_optimizers() {
  return AdamW(parameters(), {.lr = options_.lr, .weight_decay = options_.weight_decay});
}

}  // namespace levin
