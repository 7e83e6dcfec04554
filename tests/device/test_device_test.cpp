// The test device itself: it must be strict where a GPU is.
#include "support/device/test_device.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <csignal>

#include "support/error_text.h"

namespace levin::test_device_test {
namespace {

using namespace test;

at::Tensor on_device(const at::Tensor& tensor) {
  return tensor.to(at::Device(kTestDeviceType, 0));
}

TEST(TestDevice, computes_what_the_CPU_computes) {
  const at::Tensor x = torch::arange(12, torch::kFloat).view({3, 4}).sin();
  const at::Tensor y = on_device(x);
  EXPECT_EQ(y.device().str(), "testdev:0");
  EXPECT_TRUE(torch::equal((x.matmul(x.t()) + 1).softmax(1), (y.matmul(y.t()) + 1).softmax(1).cpu()));
  EXPECT_TRUE(torch::equal(x.slice(1, 1, 3).transpose(0, 1), y.slice(1, 1, 3).transpose(0, 1).cpu()));
  y.slice(0, 0, 1).zero_();
  EXPECT_EQ(y.cpu()[0].abs().sum().item<float>(), 0) << "a view shares the memory";
}

TEST(TestDevice, differentiates_through_a_convolution) {
  std::vector<at::Tensor> gradients;
  for (const bool here : {true, false}) {
    at::Tensor x = torch::arange(50, torch::kFloat).view({1, 2, 5, 5}).sin();
    at::Tensor w = torch::arange(54, torch::kFloat).view({3, 2, 3, 3}).cos();
    if (!here) x = on_device(x), w = on_device(w);
    w.requires_grad_();
    torch::conv2d(x, w).square().sum().backward();
    gradients.push_back(w.grad().cpu());
  }
  EXPECT_TRUE(torch::equal(gradients[0], gradients[1]));
}

TEST(TestDevice, refuses_tensors_of_two_devices) {
  const at::Tensor here = torch::ones({2}), there = on_device(here);
  EXPECT_TRUE(holds(error_of([&] { (void)(there + here); }), {"Expected all tensors to be on the same device", "cpu"}));
  const at::Tensor other = here.to(at::Device(kTestDeviceType, 1));
  EXPECT_TRUE(holds(error_of([&] { (void)(there + other); }), {"at least two devices", "testdev:0", "testdev:1"}));
  EXPECT_EQ((there + torch::tensor(1.0F)).cpu()[0].item<float>(), 2) << "a number of the host is a scalar";
}

TEST(TestDevice, has_NaN_in_new_memory) {
  const auto fresh = torch::empty({3}, torch::TensorOptions().device(at::Device(kTestDeviceType, 0)));
  EXPECT_TRUE(fresh.cpu().isnan().all().item<bool>());
}

TEST(TestDevice, counts_copies_and_numbers_read) {
  reset_device_counts();
  const at::Tensor x = on_device(torch::ones({2}));
  EXPECT_EQ(device_counts().to_device, 1);
  (void)x.cpu();
  EXPECT_EQ(device_counts().to_host, 1);
  EXPECT_EQ(device_counts().numbers_read, 0);
  (void)x.sum().item<float>();
  EXPECT_EQ(device_counts().numbers_read, 1);
  EXPECT_STREQ(last_number_read(), "aten::_local_scalar_dense");
  (void)torch::equal(x, x);
  EXPECT_EQ(device_counts().numbers_read, 2);
  (void)x.nonzero();
  EXPECT_EQ(device_counts().numbers_read, 3);
  (void)x.index({x > 0});
  EXPECT_GE(device_counts().numbers_read, 4);
}

// The address of a tensor's memory is not the host's to read.
TEST(TestDeviceDeathTest, ends_a_host_that_reads_its_memory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        std::signal(SIGSEGV, SIG_DFL);  // sanitizers have a handler of their own
        const at::Tensor x = on_device(torch::ones({2}));
        volatile float number = *static_cast<const volatile float*>(x.const_data_ptr());
        (void)number;
      },
      ::testing::KilledBySignal(SIGSEGV), "");
}

TEST(TestDevice, frees_what_is_not_used) {
  const int64_t before = device_bytes();
  {
    const at::Tensor x = on_device(torch::ones({1024}));
    EXPECT_GE(device_bytes(), before + 4096);
  }
  EXPECT_EQ(device_bytes(), before);
}

}  // namespace
}  // namespace levin::test_device_test
