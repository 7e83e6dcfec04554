#include "levin/inference/inference_model.h"

#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <optional>

#include "levin/core/options/error.h"
#include "levin/core/options/registry.h"
#include "levin/data/batch_rows.h"
#include "levin/data/batch_text.h"
#include "levin/inference/default_dtype_turn.h"
#include "levin/precision/full_precision.h"

namespace levin {

struct InferenceModel::Parts {
  std::shared_ptr<LightningModule> module;
  std::shared_ptr<Precision> precision;
  at::Device device = at::kCPU;
  std::optional<at::ScalarType> default_dtype = std::nullopt;  // while it runs
  bool enters_forward = false;                                 // the precision sets the thread up
  std::string class_name = "";
};

namespace {

Batch transferred(LightningModule& module, Batch batch, at::Device device, std::optional<at::ScalarType> dtype) {
  batch = module.on_before_batch_transfer(std::move(batch), 0);
  batch = module.transfer_batch_to_device(std::move(batch), device, 0);
  if (dtype) {
    const auto convert = [&dtype](at::Tensor& tensor) {
      if (tensor.is_floating_point()) tensor = tensor.to(*dtype);
    };
    for (at::Tensor& tensor : batch.tensors) convert(tensor);
    if (has_values(batch)) visit_values(batch, convert);
  }
  return module.on_after_batch_transfer(std::move(batch), 0);
}

}  // namespace

InferenceModel::InferenceModel(std::shared_ptr<LightningModule> module, std::shared_ptr<Precision> precision) {
  if (module == nullptr) throw Error("InferenceModel: the module is null.");
  if (precision == nullptr) precision = std::make_shared<SinglePrecision>();
  for (const at::Tensor& parameter : module->parameters()) {
    parameter.set_requires_grad(false);
    parameter.mutable_grad() = at::Tensor();
  }
  module->on_predict_model_eval();
  Parts parts;
  parts.device = module->device();
  // What TruePrecision::enter_forward sets is the process's; here threads take turns with it.
  const bool is_true = dynamic_cast<const TruePrecision*>(precision.get()) != nullptr;
  if (is_true) parts.default_dtype = precision->dtype();
  parts.enters_forward = !is_true;
  const LightningModule& object = *module;
  parts.class_name = detail::readable_type_name(typeid(object));
  parts.module = std::move(module);
  parts.precision = std::move(precision);
  parts_ = std::make_shared<const Parts>(std::move(parts));
}

at::Tensor InferenceModel::predict(const Batch& batch) const {
  for (const at::Tensor& tensor : batch.tensors) {
    if (!tensor.defined()) throw Error("predict: the batch has an undefined tensor: " + batch_text(batch) + ".");
  }
  LightningModule& module = *parts_->module;
  const c10::InferenceMode inference(true);
  const DefaultDtypeTurn turn(parts_->default_dtype);
  try {
    const Batch moved = transferred(module, batch, parts_->device, parts_->precision->dtype());
    const auto scope = parts_->enters_forward ? parts_->precision->enter_forward(parts_->device.type()) : nullptr;
    return module.predict_step(moved, 0);
  } catch (const c10::Error& error) {
    throw Error("predict: " + parts_->class_name + " failed for a batch of " + batch_text(batch) + ": " +
                error.what_without_backtrace());
  }
}

at::Tensor InferenceModel::predict(const at::Tensor& input) const {
  return predict(Batch(std::vector<at::Tensor>{input}));
}

const LightningModule& InferenceModel::module() const {
  return *parts_->module;
}

std::string InferenceModel::precision() const {
  return parts_->precision->name();
}

at::Device InferenceModel::device() const {
  return parts_->device;
}

}  // namespace levin
