#include "levin/cli/commands/export_example.h"

#include <ATen/TensorOperators.h>

#include <vector>

#include "levin/core/error.h"
#include "levin/models/huggingface_classifier.h"
#include "levin/models/huggingface_module.h"
#include "levin/trainer/run/override.h"

namespace levin {

namespace {

// The batch's own where every field is a tensor; else input, or input_0, input_1, …
std::vector<std::string> default_names(const Batch& batch, size_t count) {
  const std::vector<std::string> fields = batch.names();
  bool are_tensors = fields.size() == batch.count();
  for (const std::string& field : fields) are_tensors = are_tensors && batch.kind(field) == FieldKind::tensor;
  std::vector<std::string> names;
  for (size_t k = 0; k < count; ++k) {
    if (are_tensors) names.push_back(fields[k]);
    if (!are_tensors) names.push_back(count == 1 ? "input" : "input_" + std::to_string(k));
  }
  return names;
}

// As in transformers: logits of tokens, with a mask where the model knows its padding, or of images.
ExportExample pretrained_example(HuggingFaceModule& module, const Batch& batch) {
  ExportExample example;
  example.output_name = "logits";
  if (batch[0].is_floating_point()) {
    example.inputs = {{"pixel_values", batch[0]}};
    example.forward = [&module](const std::vector<at::Tensor>& inputs) {
      return std::vector<at::Tensor>{module.model()->forward({.pixel_values = inputs.at(0)}).logits};
    };
    return example;
  }
  example.inputs = {{"input_ids", batch[0]}};
  const auto pad = module.model()->config().pad_token_id();
  if (dynamic_cast<const HuggingFaceClassifier*>(&module) != nullptr && pad) {
    const at::Tensor mask = batch.count() == 3 ? batch[1] : batch[0].ne(*pad);
    example.inputs.emplace_back("attention_mask", mask.to(at::kLong));
  }
  example.forward = [&module](const std::vector<at::Tensor>& inputs) {
    ModelInputs given{.input_ids = inputs.at(0)};
    if (inputs.size() > 1) given.attention_mask = inputs[1];
    return std::vector<at::Tensor>{module.model()->forward(given).logits};
  };
  return example;
}

ExportExample forward_example(LightningModule& module, const Batch& batch) {
  ExportExample example;
  example.inputs = {{default_names(batch, 1).front(), batch[0]}};
  example.forward = [&module](const std::vector<at::Tensor>& inputs) {
    return std::vector<at::Tensor>{module.forward(inputs.at(0))};
  };
  return example;
}

ExportExample predict_example(LightningModule& module, const Batch& batch) {
  ExportExample example;
  const auto names = default_names(batch, batch.count());
  for (size_t k = 0; k < batch.count(); ++k) example.inputs.emplace_back(names[k], batch[k]);
  example.forward = [&module, &batch](const std::vector<at::Tensor>& inputs) {
    Batch given = batch;
    given.tensors = inputs;
    return std::vector<at::Tensor>{module.predict_step(given, 0)};
  };
  return example;
}

ExportExample example_of(LightningModule& module, const Batch& batch, ExportMethod method) {
  if (method == ExportMethod::automatic) {
    if (auto* pretrained = dynamic_cast<HuggingFaceModule*>(&module)) return pretrained_example(*pretrained, batch);
    const bool has_forward = detail::overrides<LightningModule>(module, &LightningModule::forward);
    method = has_forward ? ExportMethod::forward : ExportMethod::predict_step;
  }
  return method == ExportMethod::forward ? forward_example(module, batch) : predict_example(module, batch);
}

}  // namespace

ExportExample export_example(LightningModule& module, const Batch& batch, ExportMethod method) {
  if (batch.count() == 0) throw Error("levin export: the data's batches hold no tensors.");
  return example_of(module, batch, method);
}

}  // namespace levin
