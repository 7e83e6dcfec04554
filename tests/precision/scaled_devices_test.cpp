// The gradients of one model on several devices are scaled and checked together.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "levin/precision/nonfinite.h"
#include "support/device/test_device.h"

namespace levin::scaled_devices_test {
namespace {

TEST(ScaledDevices, GradientsOnOtherDevicesAreScaledAndChecked) {
  for (const int bad : {0, 1, 2}) {  // which of the gradients is not finite; 2: none
    std::vector<at::Tensor> grads = {torch::full({3}, 8.0F), torch::full({3}, 8.0F)};
    if (bad < 2) grads[static_cast<size_t>(bad)][1] = std::numeric_limits<float>::infinity();
    grads[1] = grads[1].to(at::Device(test::kTestDeviceType, 0));
    at::Tensor found = torch::zeros({1});
    scale_and_check({{grads[0]}, {grads[1]}}, found, torch::tensor(0.5F));
    EXPECT_EQ(found.item<float>(), bad < 2 ? 1 : 0) << bad;
    for (const auto& grad : grads) EXPECT_EQ(grad.cpu()[0].item<float>(), 4) << bad;
  }
}

}  // namespace
}  // namespace levin::scaled_devices_test
