// CUDA's runtime: kernels, which take their time and do nothing. What nvcc calls (__cuda…) is declared in
// crt/host_runtime.h of the toolkit, which LibTorch's wheels do not contain.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "memory.h"
#include "report.h"
#include "settings.h"
#include "stream.h"

using namespace simulated;

namespace {

struct Launch {
  dim3 grid, block;
  size_t shared = 0;
  cudaStream_t stream = nullptr;
};

// What the libraries that contain kernels have registered, by their addresses on the host.
struct Registered {
  std::mutex mutex;
  std::unordered_map<const void*, const char*> kernels;
  std::unordered_map<const void*, size_t> variables;  // their bytes
  std::unordered_map<const void*, void*> places;      // of variables, on the device
};

Registered& registered() {
  static auto* all = new Registered;
  return *all;
}

std::vector<Launch>& launches() {
  thread_local std::vector<Launch> pushed;
  return pushed;
}

cudaError_t launch(const char* name, const Launch& how) {
  const bool is_empty = how.grid.x == 0 || how.grid.y == 0 || how.grid.z == 0;
  const unsigned threads = how.block.x * how.block.y * how.block.z;
  if (is_empty || threads == 0 || threads > 1024) return failed(cudaErrorInvalidConfiguration, name);
  count("kernels");
  return enqueue(how.stream, {name, settings().kernel_us});
}

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}

void __cudaRegisterFatBinaryEnd(void**) {}

void __cudaUnregisterFatBinary(void**) {}

char __cudaInitModule(void**) {
  return 1;
}

void __cudaRegisterVar(void**, char* variable, char*, const char*, int, size_t bytes, int, int) {
  const std::lock_guard lock(registered().mutex);
  registered().variables[variable] = bytes;
}

void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  const std::lock_guard lock(registered().mutex);
  registered().kernels[function] = name;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  const std::lock_guard lock(registered().mutex);
  const auto found = registered().kernels.find(function);
  if (found == registered().kernels.end()) return failed(cudaErrorInvalidDeviceFunction, "__cudaGetKernel");
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<char*>(found->second));
  return cudaSuccess;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {
  launches().push_back({grid, block, shared, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  if (launches().empty()) return failed(cudaErrorUnknown, "__cudaPopCallConfiguration");
  const Launch how = launches().back();
  launches().pop_back();
  *grid = how.grid;
  *block = how.block;
  *shared = how.shared;
  *static_cast<cudaStream_t*>(stream) = how.stream;
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void**, size_t shared, cudaStream_t stream) {
  return launch(reinterpret_cast<const char*>(kernel), {grid, block, shared, stream});
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared,
                             cudaStream_t stream) {
  cudaKernel_t kernel = nullptr;
  if (const cudaError_t error = __cudaGetKernel(&kernel, function)) return error;
  return __cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* how, const void* function, void** arguments) {
  return cudaLaunchKernel(function, how->gridDim, how->blockDim, arguments, how->dynamicSmemBytes, how->stream);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->binaryVersion = attributes->ptxVersion = 90;
  attributes->maxDynamicSharedSizeBytes = 232448;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int threads, size_t,
                                                                   unsigned) {
  *blocks = std::max(1, 2048 / std::max(threads, 1));
  return cudaSuccess;
}

cudaError_t cudaGetSymbolAddress(void** address, const void* variable) {
  const std::lock_guard lock(gate());
  const std::lock_guard own_lock(registered().mutex);
  void*& place = registered().places[variable];
  if (place == nullptr) place = DeviceMemory::instance().take(registered().variables[variable]);
  *address = place;
  return cudaSuccess;
}

}  // extern "C"
