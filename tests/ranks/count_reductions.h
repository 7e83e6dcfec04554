#pragma once

#include <torch/torch.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace levin::test {

// All-reduces of this process, as LibTorch's own records tell them: nothing of Levin's counts itself.
inline std::atomic<int64_t> reductions = 0;

inline void count_reductions() {
  at::addGlobalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
        if (std::string(call.name()).find(":all_reduce") != std::string::npos) ++reductions;
        return nullptr;
      }).scopes({at::RecordScope::USER_SCOPE}));
}

}  // namespace levin::test
