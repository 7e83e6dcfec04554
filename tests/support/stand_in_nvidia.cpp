// The few functions of NVIDIA's NVTX, NVML and driver libraries that Levin calls, for machines without a GPU: names and
// types come from nvToolsExt.h, nvml.h and cuda.h. There is one GPU, at bus 0000:65:00.0, with fixed readings.
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

std::string calls;

struct Utilization {
  unsigned gpu, memory;
};
struct Memory {
  unsigned long long total, free, used;
};
constexpr const char* kBus = "0000:65:00.0";
constexpr int kNotFound = 6;      // NVML_ERROR_NOT_FOUND
constexpr int kNotSupported = 3;  // NVML_ERROR_NOT_SUPPORTED

}  // namespace

extern "C" {

int nvtxRangePushA(const char* name) {
  calls += std::string("(") + name;
  return 0;
}
int nvtxRangePop() {
  calls += ")";
  return 0;
}
/// What was pushed and popped since the last question.
const char* stand_in_nvtx_calls() {
  static std::string taken;
  taken = calls;
  calls.clear();
  return taken.c_str();
}

int cuInit(unsigned) {
  return 0;
}
/// Counts as many GPUs as STAND_IN_GPUS says, or one if it is not set.
int cuDeviceGetCount(int* count) {
  const char* count_text = std::getenv("STAND_IN_GPUS");
  *count = count_text != nullptr ? std::atoi(count_text) : 1;
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? 0 : 101;  // CUDA_ERROR_INVALID_DEVICE
}
int cuDeviceGetPCIBusId(char* bus, int, int) {
  std::strcpy(bus, kBus);
  return 0;
}

int nvmlInit_v2() {
  return 0;
}
int nvmlShutdown() {
  return 0;
}
const char* nvmlErrorString(int code) {
  return code == kNotFound ? "Not Found" : "Unknown Error";
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** device) {
  *device = &calls;
  return std::strcmp(bus, kBus) == 0 ? 0 : kNotFound;
}
int nvmlDeviceGetName(void*, char* name, unsigned) {
  std::strcpy(name, "NVIDIA H200");
  return 0;
}
int nvmlDeviceGetUtilizationRates(void*, Utilization* utilization) {
  *utilization = {87, 41};
  return 0;
}
int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
  *memory = {150'000'000'000ULL, 149'000'000'000ULL, 1'000'000'000ULL};
  return 0;
}
int nvmlDeviceGetTemperature(void*, int, unsigned*) {
  return kNotSupported;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  *milliwatts = 312'500;
  return 0;
}
}
