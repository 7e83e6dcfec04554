// TrainerOptions.accelerator with LibTorch's name of a backend.
#include <gtest/gtest.h>

#include "device/on_test_device.h"
#include "levin/strategies/process/ddp.h"

namespace levin::device_options_test {
namespace {

using namespace test;

std::string problem(const std::function<void(TrainerOptions&)>& set) {
  TrainerOptions options = on_test_device(1);
  set(options);
  return error_of([&] { const Trainer trainer(options); });
}

TEST(DeviceOptions, a_backend_that_this_LibTorch_lacks_is_named) {
  EXPECT_TRUE(holds(problem([](TrainerOptions& o) { o.accelerator = "xpu"; }),
                    {"TrainerOptions.accelerator: xpu: this LibTorch has no backend for xpu", "plugins"}));
}

TEST(DeviceOptions, an_unknown_name_lists_the_backends_that_are_there) {
  EXPECT_TRUE(holds(problem([](TrainerOptions& o) { o.accelerator = "testdv"; }),
                    {"\"testdv\" is not known", "testdev", "Known: auto, cpu, gpu, cuda, testdev"}));
}

TEST(DeviceOptions, a_device_that_is_not_there_is_refused) {
  EXPECT_TRUE(holds(problem([](TrainerOptions& o) { o.devices = std::vector<int64_t>{2}; }),
                    {"testdev device 2 was asked for; there are 2 testdev devices (0 to 1)"}));
  EXPECT_TRUE(holds(problem([](TrainerOptions& o) { o.devices = int64_t{3}; }),
                    {"3 were asked for; there are 2 testdev devices (0 to 1)"}));
}

TEST(DeviceOptions, several_ranks_are_not_yet_supported) {
  EXPECT_TRUE(holds(problem([](TrainerOptions& o) {
                      o.devices = int64_t{2};
                      o.strategy = DDP();
                    }),
                    {"TrainerOptions.strategy: ddp is not yet supported with accelerator: testdev", "Use devices: 1"}));
}

}  // namespace
}  // namespace levin::device_options_test
