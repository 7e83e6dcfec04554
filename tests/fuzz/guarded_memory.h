// LibTorch is not built with sanitizers, so a kernel that leaves its tensors would only be seen where it hits unmapped
// memory. GuardedMemory gives it that: each tensor on the CPU ends at a page that cannot be accessed.
#pragma once

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <map>
#include <mutex>
#include <vector>

namespace levin::fuzz {

class GuardedMemory final : public c10::Allocator {
 public:
  /// Replaces LibTorch's allocator for the rest of the process.
  static GuardedMemory& install() {
    static GuardedMemory memory;
    static const bool is_installed = [] {
      c10::SetCPUAllocator(&memory, /*priority=*/200);
      return true;
    }();
    (void)is_installed;
    return memory;
  }

  /// How many bytes one input may still take.
  void set_budget(size_t bytes) { budget_ = bytes; }

  c10::DataPtr allocate(size_t bytes) override {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(bytes <= budget_, "more memory than the fuzzer allows");
    budget_ -= bytes;
    const size_t pages = (bytes + kPage - 1) / kPage;
    auto& unused = unused_[pages];
    if (unused.empty()) unused.push_back(map(pages));
    char* const begin = unused.back();
    unused.pop_back();
    char* const data = begin + pages * kPage - (bytes + kAlignment - 1) / kAlignment * kAlignment;
    used_[data] = {begin, pages};
    return {data, data, &release, c10::Device(c10::kCPU)};  // its own context: kernels may ask for bare memory
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static constexpr size_t kPage = 4096, kAlignment = 16;

  struct Block {
    char* begin = nullptr;
    size_t pages = 0;
  };

  static void release(void* data) {
    GuardedMemory& memory = install();
    const std::lock_guard lock(memory.mutex_);
    const auto used = memory.used_.find(static_cast<char*>(data));
    memory.unused_[used->second.pages].push_back(used->second.begin);
    memory.used_.erase(used);
  }

  static char* map(size_t pages) {
    void* const begin =
        ::mmap(nullptr, (pages + 1) * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TORCH_CHECK(begin != MAP_FAILED, "no memory");
    TORCH_CHECK(::mprotect(static_cast<char*>(begin) + pages * kPage, kPage, PROT_NONE) == 0, "no guard page");
    return static_cast<char*>(begin);
  }

  std::mutex mutex_;
  size_t budget_ = SIZE_MAX;
  std::map<char*, Block> used_ = {};                  // by where their data begin
  std::map<size_t, std::vector<char*>> unused_ = {};  // by their number of pages
};

}  // namespace levin::fuzz
