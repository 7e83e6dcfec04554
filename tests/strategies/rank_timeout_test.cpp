// How long ranks wait for each other, where LibTorch cannot change that for a backend.
#include <gtest/gtest.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "levin/libtorch/version.h"
#include "levin/strategies/process/process_ranks.h"
#include "support/captured_console.h"

namespace levin::rank_timeout_test {
namespace {

// As NCCL's: neither Levin's nor Gloo's.
class OtherBackend final : public c10d::Backend {
 public:
  OtherBackend() : Backend(/*rank=*/0, /*size=*/1) {}
#if LEVIN_TORCH_AT_LEAST(2, 9)
  void setTimeout(std::chrono::milliseconds time) override {
    timeout = time;
  }
#endif

  std::chrono::milliseconds timeout{0};
};

TEST(RankTimeout, IsSetForABackendThatIsNotLevinsOrAWarningNamesTheLibTorchThatCan) {
  const test::CapturedConsole console;
  ProcessRanks ranks("auto", Seconds(60), Seconds(60));
  ranks.join({});
  const auto group = ranks.group("other", "gloo", at::kCPU);
  const auto backend = c10::make_intrusive<OtherBackend>();
  group->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::CUSTOM, backend);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  ranks.set_timeout(Seconds(7));
#if LEVIN_TORCH_AT_LEAST(2, 9)
  EXPECT_EQ(backend->timeout, std::chrono::seconds(7));
  EXPECT_EQ(console.text(), "");
#else
  EXPECT_TRUE(console.has("DDPOptions.timeout over NCCL needs LibTorch 2.9 or newer; this is Levin with LibTorch " +
                          torch_version() + ". Ranks wait as long as startup_timeout allows."))
      << console.text();
#endif
}

}  // namespace
}  // namespace levin::rank_timeout_test
