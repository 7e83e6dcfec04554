#include "levin/callbacks/nvml.h"

#include <array>

#include "levin/core/options/error.h"
#include "levin/core/process/shared_library.h"

namespace levin {

// From nvml.h and cuda.h, whose C interfaces are stable: a function changes its name (_v2) when it changes.
using NvmlDevice = struct nvmlDevice_st*;
struct NvmlUtilization {
  unsigned gpu, memory;  // percent
};
struct NvmlMemory {
  unsigned long long total, free, used;  // bytes
};
constexpr int kNvmlTemperatureGpu = 0;

namespace {

SharedLibrary driver_library(const char* name) {
  return {name, "NVML", "It comes with NVIDIA's driver; update that if it is there."};
}

// NVML numbers GPUs as the machine does, CUDA as this process sees them: the PCI bus identifies them.
std::string pci_bus_of(int64_t device_index) {
  const SharedLibrary cuda = driver_library("libcuda.so.1");
  int (*init)(unsigned) = nullptr;
  int (*get)(int*, int) = nullptr;
  int (*bus_of)(char*, int, int) = nullptr;
  cuda.find(init, "cuInit");
  cuda.find(get, "cuDeviceGet");
  cuda.find(bus_of, "cuDeviceGetPCIBusId");
  std::array<char, 32> bus = {};
  int device = 0;
  if (init(0) != 0 || get(&device, static_cast<int>(device_index)) != 0 ||
      bus_of(bus.data(), static_cast<int>(bus.size()), device) != 0) {
    throw Error("NVML: CUDA knows no GPU " + std::to_string(device_index) +
                " here. Look at nvidia-smi and CUDA_VISIBLE_DEVICES.");
  }
  return bus.data();
}

}  // namespace

struct Nvml::Driver {
  SharedLibrary library = driver_library("libnvidia-ml.so.1");
  NvmlDevice device = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_text)(int) = nullptr;
  int (*by_bus)(const char*, NvmlDevice*) = nullptr;
  int (*name)(NvmlDevice, char*, unsigned) = nullptr;
  int (*utilization)(NvmlDevice, NvmlUtilization*) = nullptr;
  int (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  int (*temperature)(NvmlDevice, int, unsigned*) = nullptr;
  int (*power)(NvmlDevice, unsigned*) = nullptr;  // milliwatts

  Driver() {
    library.find(init, "nvmlInit_v2");
    library.find(shutdown, "nvmlShutdown");
    library.find(error_text, "nvmlErrorString");
    library.find(by_bus, "nvmlDeviceGetHandleByPciBusId_v2");
    library.find(name, "nvmlDeviceGetName");
    library.find(utilization, "nvmlDeviceGetUtilizationRates");
    library.find(memory, "nvmlDeviceGetMemoryInfo");
    library.find(temperature, "nvmlDeviceGetTemperature");
    library.find(power, "nvmlDeviceGetPowerUsage");
    if (const int code = init(); code != 0)
      throw Error(std::string("NVML: nvmlInit failed: ") + error_text(code) + ".");
  }
  ~Driver() { shutdown(); }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;
};

Nvml::Nvml(int64_t device_index) : driver_(std::make_shared<Driver>()) {
  const std::string bus = pci_bus_of(device_index);
  if (const int code = driver_->by_bus(bus.c_str(), &driver_->device); code != 0) {
    throw Error("NVML: the GPU at " + bus + " cannot be asked: " + driver_->error_text(code) + ".");
  }
}

Nvml::~Nvml() = default;

std::string Nvml::name() const {
  std::array<char, 96> text = {};  // NVML_DEVICE_NAME_V2_BUFFER_SIZE
  return driver_->name(driver_->device, text.data(), static_cast<unsigned>(text.size())) == 0 ? text.data() : "";
}

Metrics Nvml::read() const {
  Metrics metrics;
  NvmlUtilization busy = {};
  if (driver_->utilization(driver_->device, &busy) == 0) {
    metrics["gpu_utilization_percent"] = busy.gpu;
    metrics["gpu_memory_utilization_percent"] = busy.memory;
  }
  NvmlMemory memory = {};
  if (driver_->memory(driver_->device, &memory) == 0) {
    metrics["gpu_memory_used_bytes"] = static_cast<double>(memory.used);
    metrics["gpu_memory_total_bytes"] = static_cast<double>(memory.total);
  }
  unsigned value = 0;
  if (driver_->temperature(driver_->device, kNvmlTemperatureGpu, &value) == 0)
    metrics["gpu_temperature_celsius"] = value;
  if (driver_->power(driver_->device, &value) == 0) metrics["gpu_power_watts"] = value / 1000.0;
  return metrics;
}

}  // namespace levin
