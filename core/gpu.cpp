#include "levin/core/gpu.h"

#include <filesystem>
#include <memory>
#include <mutex>

#include "levin/core/options/error.h"
#include "levin/core/process/parts.h"
#include "levin/core/process/shared_library.h"

namespace levin {

namespace {

constexpr const char* kComponent = "liblevin_cuda.so";

// Loaded once, and until the end of the process, because LibTorch's CUDA part cannot be unloaded.
struct Opened {
  std::mutex mutex;
  std::unique_ptr<SharedLibrary> library;
  Gpu* gpu = nullptr;
};

Opened& opened() {
  static auto* all = new Opened;  // never destroyed
  return *all;
}

void check_version(const SharedLibrary& library) {
  const char* (*version)() = nullptr;
  library.find(version, "levin_cuda_version");
  check_component_version(kComponent, version());
}

void open(Opened& all, const std::string& path) {
  auto library = std::make_unique<SharedLibrary>(
      path, "TrainerOptions.accelerator: gpu",
      "Levin's CUDA component has to be built for the LibTorch that is used: LibTorch with CUDA (./dev setup --cuda), "
      "and Levin built with it.");
  check_version(*library);
  Gpu* (*component)() = nullptr;
  library->find(component, "levin_cuda_component");
  library->keep();
  all.gpu = component();
  all.library = std::move(library);
}

}  // namespace

GpuDriver ask_gpu_driver() {
  static const std::string name = "libcuda.so.1";
  try {
    // Never closed: the driver keeps state in the process.
    SharedLibrary driver(name, "NVIDIA's driver", "Install the driver, or use accelerator: cpu.");
    driver.keep();
    int (*init)(unsigned) = nullptr;
    int (*get_count)(int*) = nullptr;
    driver.find(init, "cuInit");
    driver.find(get_count, "cuDeviceGetCount");
    int count = 0;
    const int status = init(0);
    if (status == 0 && get_count(&count) == 0 && count > 0) return {count, ""};
    return {0, "NVIDIA's driver finds no GPU (cuInit: " + std::to_string(status) +
                   "). Look at nvidia-smi and CUDA_VISIBLE_DEVICES, or use accelerator: cpu."};
  } catch (const Error& error) {
    return {0, error.what()};
  }
}

std::string gpu_component() {
  const std::string folder = folder_of_code(reinterpret_cast<const void*>(&component_version));
  const std::string path = folder + "/" + kComponent;
  std::error_code failed;
  return !folder.empty() && std::filesystem::exists(path, failed) ? path : "";
}

std::string why_no_gpu() {
  if (gpu_component().empty()) {
    return std::string("this build of Levin has no CUDA component (there is no ") + kComponent +
           " next to liblevin_core.so). Build it where LibTorch has CUDA (./dev setup --cuda), or use accelerator: "
           "cpu.";
  }
  return ask_gpu_driver().problem;
}

Gpu& open_gpu(const std::string& path) {
  Opened& all = opened();
  const std::lock_guard lock(all.mutex);
  if (all.gpu != nullptr && path.empty()) return *all.gpu;
  if (path.empty()) {
    const std::string problem = why_no_gpu();
    if (!problem.empty()) throw ConfigError("TrainerOptions.accelerator: gpu: " + problem);
  }
  try {
    open(all, path.empty() ? gpu_component() : path);
  } catch (const ConfigError&) {
    throw;
  } catch (const Error& error) {
    throw ConfigError(error.what());
  }
  return *all.gpu;
}

bool gpu_is_open() {
  Opened& all = opened();
  const std::lock_guard lock(all.mutex);
  return all.gpu != nullptr;
}

const SharedLibrary& gpu_library() {
  (void)open_gpu();
  return *opened().library;
}

}  // namespace levin
