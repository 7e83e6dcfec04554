#include "levin/libtorch/compiled_library.h"

#include <torch/csrc/inductor/aoti_runner/model_container_runner_cpu.h>

#include <type_traits>

#include "levin/libtorch/version.h"

namespace levin {

namespace {

// The graph runs on one thread at a time; LibTorch 2.6 has no option for that.
template <class Runner>
std::unique_ptr<Runner> make_runner(const std::string& path) {
  if constexpr (std::is_constructible_v<Runner, std::string, size_t, bool>) {
    return std::make_unique<Runner>(path, 1, /*run_single_threaded=*/true);
  } else {
    static_assert(std::is_constructible_v<Runner, std::string, size_t> && !LEVIN_TORCH_AT_LEAST(2, 7),
                  "This LibTorch has changed the constructor of AOTInductor's runner: adapt "
                  "libtorch/compiled_library.cpp.");
    return std::make_unique<Runner>(path, 1);
  }
}

}  // namespace

CompiledLibrary::CompiledLibrary(const std::string& path)
    : runner_(make_runner<torch::inductor::AOTIModelContainerRunnerCpu>(path)) {}
CompiledLibrary::~CompiledLibrary() = default;

std::vector<at::Tensor> CompiledLibrary::run(const std::vector<at::Tensor>& inputs) {
  return runner_->run(inputs);
}

}  // namespace levin
