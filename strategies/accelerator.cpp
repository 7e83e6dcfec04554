#include "levin/strategies/accelerator.h"

#include <ATen/Context.h>
#include <c10/core/DeviceType.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "levin/core/gpu.h"
#include "levin/core/options/error.h"
#include "levin/libtorch/device_memory.h"
#include "levin/strategies/device_copies.h"

namespace levin {

namespace {

class CudaAccelerator final : public Accelerator {
 public:
  int64_t device_count() const override {
    return gpu_is_open() ? static_cast<int64_t>(at::getNumGPUs()) : ask_gpu_driver().count;
  }
  void use(at::Device device) override { open_gpu().use(device); }
  std::shared_ptr<DeviceCopier> make_copier(at::Device device) override { return StreamCopier::make(device); }
  std::shared_ptr<StepRecorder> make_recorder(at::Device device) override { return open_gpu().make_recorder(device); }
  std::optional<at::Generator> generator(int64_t index) const override {
    return at::globalContext().defaultGenerator(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(index)));
  }
};

// Any backend, through LibTorch's interface.
class BackendAccelerator final : public Accelerator {
 public:
  explicit BackendAccelerator(at::DeviceType type) : type_(type) {}

  int64_t device_count() const override { return DeviceBackend(type_).deviceCount(); }
  void use(at::Device device) override { DeviceBackend(type_).setDevice(device); }
  std::shared_ptr<DeviceCopier> make_copier(at::Device device) override { return StreamCopier::make(device); }
  std::optional<at::Generator> generator(int64_t index) const override {
    try {
      return at::globalContext().defaultGenerator(at::Device(type_, static_cast<c10::DeviceIndex>(index)));
    } catch (const c10::Error&) {  // the backend draws from the CPU's
      return std::nullopt;
    }
  }

 private:
  at::DeviceType type_;
};

struct Kinds {
  std::mutex mutex;
  std::map<at::DeviceType, std::unique_ptr<Accelerator>> all;
  std::vector<at::DeviceType> used;
};

Kinds& kinds() {
  static auto* made = new Kinds;  // never destroyed: generators are restored by destructors
  return *made;
}

bool is_backend(at::DeviceType type) {
  return hasDeviceGuardImpl(type);
}

std::vector<at::DeviceType> all_types() {
  std::vector<at::DeviceType> types;
  for (int k = 0; k < static_cast<int>(c10::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES); ++k) {
    const auto type = static_cast<at::DeviceType>(k);
    if (!c10::isValidDeviceType(type) || type == at::kCPU || type == at::kMeta) continue;
    types.push_back(type);
  }
  return types;
}

}  // namespace

std::string accelerator_name(at::DeviceType type) {
  return c10::DeviceTypeName(type, /*lower_case=*/true);
}

std::optional<at::DeviceType> accelerator_type(const std::string& name) {
  for (const at::DeviceType type : all_types()) {
    if (accelerator_name(type) == name) return type;
  }
  return std::nullopt;
}

std::string why_no_accelerator(at::DeviceType type) {
  if (type == at::kCUDA) return why_no_gpu();
  const std::string name = accelerator_name(type);
  if (!is_backend(type)) {
    return "this LibTorch has no backend for " + name +
           ". Use a LibTorch that was built with one, open the library that adds it with plugins, or use accelerator: "
           "cpu.";
  }
  if (accelerator(type).device_count() > 0) return "";
  return "LibTorch's backend for " + name + " finds no device. Look at its driver, or use accelerator: cpu.";
}

std::vector<std::string> present_accelerators() {
  std::vector<std::string> names;
  for (const at::DeviceType type : all_types()) {
    if (type != at::kCUDA && is_backend(type) && accelerator(type).device_count() > 0) {
      names.push_back(accelerator_name(type));
    }
  }
  return names;
}

Accelerator& accelerator(at::DeviceType type) {
  Kinds& known = kinds();
  const std::lock_guard lock(known.mutex);
  auto& kind = known.all[type];
  if (kind != nullptr) return *kind;
  if (type != at::kCUDA && !is_backend(type)) {
    throw ConfigError("TrainerOptions.accelerator: this LibTorch has no backend for " + accelerator_name(type) + ".");
  }
  if (type == at::kCUDA) {
    kind = std::make_unique<CudaAccelerator>();
  } else {
    kind = std::make_unique<BackendAccelerator>(type);
  }
  return *kind;
}

void add_accelerator(at::DeviceType type, std::unique_ptr<Accelerator> own) {
  Kinds& known = kinds();
  const std::lock_guard lock(known.mutex);
  known.all[type] = std::move(own);
}

void use_accelerator(at::Device device) {
  accelerator(device.type()).use(device);
  Kinds& known = kinds();
  const std::lock_guard lock(known.mutex);
  if (std::find(known.used.begin(), known.used.end(), device.type()) == known.used.end()) {
    known.used.push_back(device.type());
  }
}

// LibTorch must not be asked for CUDA before the component is loaded: it would find no GPU
// (core/gpu.h). Once it is loaded, a program may draw numbers on a GPU before any run.
std::vector<at::DeviceType> used_accelerators() {
  Kinds& known = kinds();
  const std::lock_guard lock(known.mutex);
  std::vector<at::DeviceType> types = known.used;
  const bool listed = std::find(types.begin(), types.end(), at::kCUDA) != types.end();
  if (!listed && gpu_is_open()) types.push_back(at::kCUDA);
  return types;
}

}  // namespace levin
