#include "levin/trainer/step/kept_buffers.h"

#include <ATen/ops/_foreach_copy.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "levin/precision/nonfinite.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/run/run.h"

namespace levin {

std::shared_ptr<KeptBuffers> KeptBuffers::make(const Run& run) {
  if (run.fit.nonfinite_loss != NonFiniteLoss::skip) return nullptr;
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& buffer : run.entry.module->buffers()) {
    const bool may_be_nan = buffer.defined() && buffer.is_floating_point() && buffer.layout() == at::kStrided;
    if (may_be_nan && buffer.numel() > 0) buffers.push_back(buffer.detach());
  }
  return buffers.empty() ? nullptr : std::make_shared<KeptBuffers>(std::move(buffers));
}

KeptBuffers::KeptBuffers(std::vector<at::Tensor> buffers) : buffers_(std::move(buffers)) {
  for (const at::Tensor& buffer : buffers_) saved_.push_back(buffer.clone());
}

void KeptBuffers::save() {
  const at::NoGradGuard no_grad;
  at::_foreach_copy_(saved_, buffers_);
}

void KeptBuffers::restore_nonfinite() {
  const at::NoGradGuard no_grad;
  for (size_t k = 0; k < buffers_.size(); ++k) {
    if (!has_nonfinite(buffers_[k].cpu()) || has_nonfinite(saved_[k].cpu())) continue;
    buffers_[k].copy_(saved_[k]);
    restored_.push_back(k);
  }
}

void KeptBuffers::end_window() {
  const at::NoGradGuard no_grad;
  for (const size_t k : restored_) buffers_[k].copy_(saved_[k]);
  restored_.clear();
}

}  // namespace levin
