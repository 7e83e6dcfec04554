#include "levin/strategies/process/spilled_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/options/units.h"
#include "levin/core/process/console.h"
#include "levin/core/tensors.h"
#include "levin/libtorch/device_memory.h"

namespace levin {

namespace {

// New blocks may use this much resident memory before they are evicted: new tensors are written more than once (zeros,
// then random numbers), and each page that is read back costs a fault.
constexpr size_t kResidentBytes = 64 << 20;
constexpr size_t kOpenFiles = 128;

const char* const kAdvice = "Name a folder on a local disk in FSDPOptions.spill_dir, or set spill_dir: \"off\".";

thread_local SpilledMemory* current = nullptr;

bool is_in_memory(const std::string& folder) {
  struct statfs info {};
  return ::statfs(folder.c_str(), &info) == 0 && (info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC);
}

int open_uninterrupted(const std::string& path, int flags) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

// A file without a name, or one that is unlinked at once.
int open_nameless(const std::string& folder) {
  const int fd = open_uninterrupted(folder, O_TMPFILE);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
  const std::string path = temporary_name(folder + "/levin-spilled");
  const int named = open_uninterrupted(path, O_CREAT | O_NOFOLLOW);
  if (named >= 0) (void)::unlink(path.c_str());
  return named;
}

// Reserves all space now: writing to a hole of a file raises SIGBUS if the disk is full.
int reserve(int fd, size_t bytes) {
  int result = -1;
  do {
    result = ::fallocate(fd, 0, 0, static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  return result;
}

std::string find_folder(const std::string& asked) {
  if (asked != "auto") return asked;
  const char* variable = std::getenv("TMPDIR");
  if (variable != nullptr && *variable != '\0') return variable;
  return is_in_memory("/tmp") ? "/var/tmp" : "/tmp";
}

}  // namespace

struct SpilledMemory::Block {
  size_t bytes = 0;
  int64_t owner = 0;
  int fd = -1;  // until it is evicted for the first time
  bool in_memory = false;
};

// Replaces the CPU allocator while a scope exists. Never destroyed, nor are its records of blocks: storages refer to
// it, and their tensors may outlive everything else. A block's context is its data, as some operators require
// (raw_allocate).
class SpilledMemory::Allocator final : public c10::Allocator {
 public:
  static Allocator& instance() {
    static auto* allocator = new Allocator();  // never destroyed
    return *allocator;
  }

  c10::DataPtr allocate(size_t bytes) override {
    if (current != nullptr && bytes >= kSmallestBlock) {
      void* data = current->allocate(bytes);
      if (data != nullptr) return {data, data, &Allocator::free, c10::Device(c10::DeviceType::CPU)};
    }
    return inner()->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Allocator::free; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  // May be called by several threads; the last leave() restores the allocator that the first enter() replaced.
  void enter() {
    const std::lock_guard lock(mutex_);
    if (scopes_++ > 0) return;
    if (GetCPUAllocator() != this) inner_ = GetCPUAllocator();
    SetCPUAllocator(this);
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    if (--scopes_ == 0 && GetCPUAllocator() == this) SetCPUAllocator(inner_);
  }

  void add(void* data, const Block& block) {
    const std::lock_guard lock(mutex_);
    blocks_[reinterpret_cast<uintptr_t>(data)] = block;
  }

  // Calls `use` with the address and record of each block of an owner; blocks cannot be freed meanwhile.
  template <class Use>
  void each(int64_t owner, Use use) {
    const std::lock_guard lock(mutex_);
    for (auto& [address, block] : blocks_) {
      if (block.owner == owner && !block.in_memory) use(reinterpret_cast<void*>(address), block);
    }
  }

  [[nodiscard]] bool is_spilled(const void* data) {
    const std::lock_guard lock(mutex_);
    const auto address = reinterpret_cast<uintptr_t>(data);
    auto next = blocks_.upper_bound(address);
    if (next == blocks_.begin()) return false;
    const auto& [begin, block] = *--next;
    return address < begin + block.bytes && !block.in_memory;
  }

 private:
  c10::Allocator* inner() const {
    c10::Allocator* found = inner_;
    return found != nullptr ? found : GetDefaultCPUAllocator();
  }

  // Also frees blocks of the inner allocator, if they were allocated as raw pointers.
  static void free(void* data) {
    Allocator& self = instance();
    Block block;
    {
      const std::lock_guard lock(self.mutex_);
      const auto found = self.blocks_.find(reinterpret_cast<uintptr_t>(data));
      if (found != self.blocks_.end()) block = self.blocks_.extract(found).mapped();
    }
    if (block.bytes == 0) return self.inner()->raw_deallocate(data);
    if (block.fd >= 0) ::close(block.fd);
    ::munmap(data, block.bytes);
  }

  std::mutex mutex_;
  std::map<uintptr_t, Block> blocks_;
  std::atomic<c10::Allocator*> inner_ = nullptr;
  int scopes_ = 0;
};

SpilledMemory::SpilledMemory(const std::string& folder) : folder_(find_folder(folder)) {
  static std::atomic<int64_t> made = 0;
  id_ = ++made;
  if (!is_in_memory(folder_)) return;
  off_ = true;
  Console::instance().warn("fsdp: the folder " + folder_ +
                           " is a file system in memory, so every rank makes the full model in memory. " + kAdvice);
}

SpilledMemory::~SpilledMemory() {
  give_back();
}

SpilledMemory::Scope::Scope(SpilledMemory& memory) : outer_(std::exchange(current, &memory)) {
  Allocator::instance().enter();
}

SpilledMemory::Scope::~Scope() {
  Allocator::instance().leave();
  current = outer_;
}

void* SpilledMemory::allocate(size_t bytes) {
  if (off_) return nullptr;
  if (fresh_bytes_ + bytes > kResidentBytes || fresh_files_ >= kOpenFiles) give_back();
  Block block{.bytes = bytes, .owner = id_, .fd = open_nameless(folder_)};
  void* data = MAP_FAILED;
  if (block.fd >= 0 && reserve(block.fd, bytes) == 0) {
    data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, block.fd, 0);
  }
  if (data == MAP_FAILED) {
    turn_off(errno, bytes);
    if (block.fd >= 0) ::close(block.fd);
    return nullptr;
  }
  fresh_bytes_ += bytes;
  ++fresh_files_;
  Allocator::instance().add(data, block);
  return data;
}

void SpilledMemory::turn_off(int error_number, size_t bytes) {
  if (off_.exchange(true)) return;
  Console::instance().warn("fsdp: cannot reserve " + bytes_text(bytes) + " in " + folder_ +
                           " for the model while it is made: " + system_error_text(error_number) +
                           ". The rest of the model is made in memory. The folder needs space for the full model, "
                           "once for every rank of this machine. " +
                           kAdvice);
}

void SpilledMemory::give_back() {
  fresh_bytes_ = 0;
  fresh_files_ = 0;
  Allocator::instance().each(id_, [](void* data, Block& block) {
    ::madvise(data, block.bytes, MADV_DONTNEED);
    if (block.fd < 0) return;
    // So that the kernel has clean pages to reclaim at the memory limit of a control group.
    (void)::sync_file_range(block.fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    ::close(std::exchange(block.fd, -1));
  });
}

void SpilledMemory::move_to_memory() {
  Allocator::instance().each(id_, [](void* data, Block& block) {
    void* memory = ::mmap(nullptr, block.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;  // it stays in its file, which is slower but correct
    std::memcpy(memory, data, block.bytes);
    if (::mremap(memory, block.bytes, block.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, data) == MAP_FAILED) {
      ::munmap(memory, block.bytes);
      return;
    }
    if (block.fd >= 0) ::close(std::exchange(block.fd, -1));
    block.in_memory = true;
  });
}

int64_t SpilledMemory::bytes() const {
  int64_t sum = 0;
  Allocator::instance().each(id_, [&](void*, const Block& block) { sum += static_cast<int64_t>(block.bytes); });
  return sum;
}

bool SpilledMemory::holds(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() &&
         Allocator::instance().is_spilled(tensor.storage().data_ptr().get());
}

}  // namespace levin
