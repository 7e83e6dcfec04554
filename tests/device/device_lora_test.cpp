// LoRA on a device that is not the CPU: adapters are on the device of their layer, and the bits are the CPU's. The test
// device refuses tensors of the CPU, or of its other device, among an operator's arguments.
#include <gtest/gtest.h>

#include "callbacks/lora_reader.h"
#include "device/on_test_device.h"
#include "levin/callbacks/lora.h"
#include "levin/strategies/device/model_parallel.h"

namespace levin::device_lora_test {
namespace {

using test::on_test_device;
using test::Reader;

TrainerOptions adapted() {
  return on_test_device(3, {LoRA({.target_modules = test::reader_layers(), .r = 3})});
}

std::vector<float> train(Reader& module, const TrainerOptions& options) {
  seed_everything(3);
  Trainer(options).fit(module, {test::reader_texts(8)});
  return module.losses;
}

std::vector<float> losses_on_the_cpu() {
  Reader module;
  TrainerOptions options = adapted();
  options.accelerator = "cpu";
  return train(module, options);
}

TEST(DeviceLoRA, gives_the_bits_of_the_CPU) {
  Reader module;
  EXPECT_EQ(train(module, adapted()), losses_on_the_cpu());
  for (const auto& item : module.named_parameters()) EXPECT_EQ(item.value().device().str(), "testdev:0") << item.key();
}

TEST(DeviceLoRA, has_adapters_on_the_device_of_their_layer_in_parts_on_two_devices) {
  Reader module;
  TrainerOptions options = adapted();
  options.devices = int64_t{2};
  options.strategy = ModelParallel({.placement = Placement{{"tokens", 0}, {"conv", 1}, {"head", 1}}});
  EXPECT_EQ(train(module, options), losses_on_the_cpu());
  int64_t adapters = 0;
  for (const auto& item : module.named_parameters()) {
    const char* device = item.key().starts_with("tokens.") ? "testdev:0" : "testdev:1";
    EXPECT_EQ(item.value().device().str(), device) << item.key();
    if (item.key().find("lora_") == std::string::npos) continue;
    ++adapters;
    EXPECT_GT(item.value().abs().max().item<float>(), 0) << item.key();
  }
  EXPECT_EQ(adapters, 6);
}

}  // namespace
}  // namespace levin::device_lora_test
