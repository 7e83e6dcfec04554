#include "levin/callbacks/mixup.h"

#include <ATen/TensorOperators.h>

namespace levin {

MixUp::MixUp(MixUpOptions options)
    : MixedBatches("MixUp", {.alpha = checked(options, "MixUpOptions").alpha,
                             .p = options.p,
                             .num_classes = options.num_classes,
                             .input = static_cast<size_t>(options.input),
                             .target = static_cast<size_t>(options.target)}) {}

at::Tensor MixUp::mix_inputs(const at::Tensor& inputs, const at::Tensor& others, double& kept) const {
  return inputs * kept + others * (1 - kept);
}

}  // namespace levin
