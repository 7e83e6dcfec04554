#include "levin/profilers/nvtx.h"

#include <dlfcn.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <vector>

#include "levin/core/error.h"

namespace levin {

namespace {

using RangePush = int (*)(const char*);
using RangePop = int (*)();
RangePush range_push = nullptr;  // of the library that was opened last
RangePop range_pop = nullptr;

// "" if the library serves; else why not.
std::string open_library(const std::string& name) {
  void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);  // stays open: ranges may be pushed at any time
  if (library == nullptr) return ::dlerror();
  auto* push = reinterpret_cast<RangePush>(::dlsym(library, "nvtxRangePushA"));
  auto* pop = reinterpret_cast<RangePop>(::dlsym(library, "nvtxRangePop"));
  if (push == nullptr || pop == nullptr) return name + " has no nvtxRangePushA and nvtxRangePop";
  range_push = push;
  range_pop = pop;
  return "";
}

Nvtx of_library(const std::string& name) {
  return {[](const char* text) { (void)range_push(text); }, [] { (void)range_pop(); }, name};
}

}  // namespace

Nvtx find_nvtx(const std::string& library) {
  if (!library.empty()) {
    const std::string problem = open_library(library);
    if (problem.empty()) return of_library(library);
    throw ConfigError("NvtxProfilerOptions.library: " + problem +
                      ". Give the path of libnvToolsExt.so.1, or leave it unset.");
  }
  // NVTX itself is a header that LibTorch's CUDA part was compiled with.
  if (torch::profiler::impl::cudaStubs()->enabled()) {
    return {[](const char* text) { torch::profiler::impl::cudaStubs()->rangePush(text); },
            [] { torch::profiler::impl::cudaStubs()->rangePop(); }, "LibTorch"};
  }
  const std::vector<std::string> names{"libnvToolsExt.so.1", "libnvtx3interop.so.1", "libnvtx3interop.so"};
  for (const auto& name : names) {
    if (open_library(name).empty()) return of_library(name);
  }
  throw ConfigError("trainer.profiler: nvtx: there is no NVTX here: LibTorch's CUDA part is not loaded, and none of " +
                    join(names) +
                    " is found. Train with accelerator: gpu, name a library in NvtxProfilerOptions.library, "
                    "or use the profiler trace, which needs none.");
}

}  // namespace levin
