#include "memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "settings.h"

namespace simulated {

namespace {

constexpr size_t kAlignment = 512, kPage = 4096;

size_t rounded(size_t bytes, size_t to) {
  return std::max<size_t>(1, (bytes + to - 1) / to) * to;
}

char* reserve(size_t bytes, int protection, int kind, int file) {
  void* place = ::mmap(nullptr, bytes, protection, kind | MAP_NORESERVE, file, 0);
  if (place == MAP_FAILED) {
    std::perror("simulated GPU: mmap");
    std::abort();
  }
  return static_cast<char*>(place);
}

}  // namespace

// Never destroyed: LibTorch frees memory until the end of the process.
DeviceMemory& DeviceMemory::instance() {
  static auto* memory = new DeviceMemory;
  return *memory;
}

DeviceMemory::DeviceMemory() : total_(settings().memory) {
  file_ = ::memfd_create("simulated_gpu", 0);
  if (file_ < 0 || ::ftruncate(file_, static_cast<off_t>(total_)) != 0) {
    std::perror("simulated GPU: memfd_create");
    std::abort();
  }
  numbers_ = reserve(total_, PROT_READ | PROT_WRITE, MAP_SHARED, file_);
  device_ = reserve(total_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  free_[0] = total_;
}

void* DeviceMemory::take(size_t bytes) {
  const size_t size = rounded(bytes, kAlignment);
  const auto found = std::find_if(free_.begin(), free_.end(), [&](const auto& range) { return range.second >= size; });
  if (found == free_.end()) return nullptr;
  const auto [offset, length] = *found;
  free_.erase(found);
  if (length > size) free_[offset + size] = length - size;
  taken_[offset] = size;
  in_use_ += size;
  peak_ = std::max(peak_, in_use_);
  return device_ + offset;
}

bool DeviceMemory::give(void* address) {
  const auto found = taken_.find(static_cast<size_t>(static_cast<char*>(address) - device_));
  if (found == taken_.end()) return false;
  auto [offset, size] = *found;
  taken_.erase(found);
  in_use_ -= size;
  (void)::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                    static_cast<off_t>(size));
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + size) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin() && std::prev(next)->first + std::prev(next)->second == offset) {
    std::prev(next)->second += size;
  } else {
    free_[offset] = size;
  }
  return true;
}

bool DeviceMemory::holds(const void* address) const {
  const auto* place = static_cast<const char*>(address);
  return place >= device_ && place < device_ + total_;
}

void* DeviceMemory::on_host(const void* address) const {
  auto* place = static_cast<char*>(const_cast<void*>(address));
  return holds(address) ? numbers_ + (place - device_) : place;
}

PinnedMemory& PinnedMemory::instance() {
  static auto* memory = new PinnedMemory;
  return *memory;
}

void* PinnedMemory::take(size_t bytes) {
  void* place = std::aligned_alloc(kPage, rounded(bytes, kPage));
  if (place != nullptr) add(place, bytes);
  return place;
}

bool PinnedMemory::give(void* address) {
  if (!remove(address)) return false;
  std::free(address);
  return true;
}

bool PinnedMemory::holds(const void* address) const {
  auto* place = static_cast<char*>(const_cast<void*>(address));
  auto after = ranges_.upper_bound(place);
  return after != ranges_.begin() && place < std::prev(after)->first + std::prev(after)->second;
}

}  // namespace simulated
