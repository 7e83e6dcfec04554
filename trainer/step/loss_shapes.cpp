#include "levin/trainer/step/loss_shapes.h"

#include <array>
#include <memory>
#include <string_view>

#include "levin/core/tensors.h"
#include "levin/trainer/step/run_messages.h"

namespace levin {

namespace {

constexpr std::array<std::string_view, 5> kElementwiseLosses{"aten::mse_loss", "aten::l1_loss", "aten::smooth_l1_loss",
                                                             "aten::huber_loss", "aten::soft_margin_loss"};

bool is_elementwise_loss(std::string_view name) {
  for (const std::string_view loss : kElementwiseLosses) {
    if (name == loss) return true;
  }
  return false;
}

std::unique_ptr<at::ObserverContext> compare_shapes(const at::RecordFunction& call) {
  if (!is_elementwise_loss(call.name())) return nullptr;
  const auto inputs = call.inputs();
  if (inputs.size() < 2 || !inputs[0].isTensor() || !inputs[1].isTensor()) return nullptr;
  const at::Tensor& prediction = inputs[0].toTensor();
  const at::Tensor& target = inputs[1].toTensor();
  if (!prediction.defined() || !target.defined() || prediction.sizes() == target.sizes()) return nullptr;
  warn_of_run("training_step: " + std::string(call.name()).substr(6) + " compares a tensor " +
              shape_text(prediction.sizes()) + " with one " + shape_text(target.sizes()) +
              ": every element of one meets several of the other. Give both the same shape, e.g. by "
              "squeeze(1) or unsqueeze(1).");
  return nullptr;
}

}  // namespace

LossShapeCheck::LossShapeCheck()
    : handle_(at::addThreadLocalCallback(
          at::RecordFunctionCallback(&compare_shapes).needsInputs(true).scopes({at::RecordScope::FUNCTION}))) {}

LossShapeCheck::~LossShapeCheck() {
  at::removeCallback(handle_);
}

}  // namespace levin
