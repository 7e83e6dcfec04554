// CUDA's runtime: memory and copies.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "memory.h"
#include "report.h"
#include "settings.h"
#include "stream.h"

using namespace simulated;

namespace {

// Once LibTorch's CUDA part has registered its operators, which is before it allocates.
void open_operators() {
  static const bool opened = [] {
    const char* library = std::getenv("SIMULATED_GPU_OPERATORS");
    if (library == nullptr || *library == '\0' || ::dlopen(library, RTLD_NOW | RTLD_GLOBAL) != nullptr) return true;
    std::fprintf(stderr, "simulated GPU: SIMULATED_GPU_OPERATORS: %s\n", ::dlerror());
    std::abort();
  }();
  (void)opened;
}

const char* kind_of(const void* address) {
  if (DeviceMemory::instance().holds(address)) return "device";
  return PinnedMemory::instance().holds(address) ? "pinned" : "pageable";
}

// The duration of a copy in microseconds, with the bandwidths of an H100 and of PCI Express.
double us_of(const void* to, const void* from, size_t bytes) {
  const bool on_device = DeviceMemory::instance().holds(to) && DeviceMemory::instance().holds(from);
  return settings().kernel_us + static_cast<double>(bytes) / (on_device ? 1.5e6 : 5e4);
}

void move(void* to, const void* from, size_t bytes) {
  std::memmove(DeviceMemory::instance().on_host(to), DeviceMemory::instance().on_host(from), bytes);
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** address, size_t bytes) {
  open_operators();
  count("cudaMalloc");
  if (const cudaError_t refusal = refuse_in_capture("cudaMalloc")) return refusal;
  const std::lock_guard lock(gate());
  *address = DeviceMemory::instance().take(bytes);
  return *address != nullptr ? cudaSuccess : failed(cudaErrorMemoryAllocation, "cudaMalloc");
}

cudaError_t cudaFree(void* address) {
  if (address == nullptr) return cudaSuccess;
  if (const cudaError_t refusal = refuse_in_capture("cudaFree")) return refusal;
  wait_for_all_streams();
  const std::lock_guard lock(gate());
  return DeviceMemory::instance().give(address) ? cudaSuccess : failed(cudaErrorInvalidValue, "cudaFree");
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const std::lock_guard lock(gate());
  *total = DeviceMemory::instance().total();
  *free = *total - DeviceMemory::instance().in_use();
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) {
  if (const cudaError_t refusal = refuse_in_capture("cudaHostAlloc")) return refusal;
  const std::lock_guard lock(gate());
  *address = PinnedMemory::instance().take(bytes);
  return *address != nullptr ? cudaSuccess : failed(cudaErrorMemoryAllocation, "cudaHostAlloc");
}

cudaError_t cudaFreeHost(void* address) {
  if (const cudaError_t refusal = refuse_in_capture("cudaFreeHost")) return refusal;
  const std::lock_guard lock(gate());
  return PinnedMemory::instance().give(address) ? cudaSuccess : failed(cudaErrorInvalidValue, "cudaFreeHost");
}

cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned) {
  const std::lock_guard lock(gate());
  PinnedMemory::instance().add(address, bytes);
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* address) {
  const std::lock_guard lock(gate());
  const bool removed = PinnedMemory::instance().remove(address);
  return removed ? cudaSuccess : failed(cudaErrorHostMemoryNotRegistered, "cudaHostUnregister");
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  const std::lock_guard lock(gate());
  *attributes = {};
  attributes->device = cudaInvalidDeviceId;
  attributes->type = cudaMemoryTypeUnregistered;
  const bool on_device = DeviceMemory::instance().holds(address);
  if (!on_device && !PinnedMemory::instance().holds(address)) return cudaSuccess;
  attributes->type = on_device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  attributes->device = 0;
  attributes->devicePointer = const_cast<void*>(address);
  if (!on_device) attributes->hostPointer = const_cast<void*>(address);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  std::string name;
  double us = 0;
  bool waits = false;
  {
    const std::lock_guard lock(gate());
    name = std::string("copy ") + kind_of(from) + " to " + kind_of(to);
    us = us_of(to, from, bytes);
    waits = name.find("pageable") != std::string::npos;
    if (waits && Stream::of(stream).capture != nullptr) {
      Stream::of(stream).capture->invalidate(name);
      return failed(cudaErrorStreamCaptureUnsupported, name);
    }
  }
  const cudaError_t error = enqueue(stream, {name, us, [=] { move(to, from, bytes); }});
  if (error != cudaSuccess || !waits) return error;
  count("waits: copy of pageable memory");
  return synchronize(Stream::of(stream), name);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  count("waits: cudaMemcpy");
  if (const cudaError_t refusal = refuse_in_capture("cudaMemcpy")) return refusal;
  const cudaError_t error = enqueue(nullptr, {"cudaMemcpy", 0, [=] { move(to, from, bytes); }});
  return error != cudaSuccess ? error : synchronize(Stream::of(nullptr), "cudaMemcpy");
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind, cudaStream_t stream) {
  return enqueue(stream, {"copy 2D", us_of(to, from, width * height), [=] {
                            for (size_t row = 0; row < height; ++row) {
                              move(static_cast<char*>(to) + row * to_pitch,
                                   static_cast<const char*>(from) + row * from_pitch, width);
                            }
                          }});
}

cudaError_t cudaMemsetAsync(void* address, int value, size_t bytes, cudaStream_t stream) {
  return enqueue(stream, {"memset", settings().kernel_us,
                          [=] { std::memset(DeviceMemory::instance().on_host(address), value, bytes); }});
}

cudaError_t cudaMemset(void* address, int value, size_t bytes) {
  if (const cudaError_t refusal = refuse_in_capture("cudaMemset")) return refusal;
  return cudaMemsetAsync(address, value, bytes, nullptr);
}

}  // extern "C"
