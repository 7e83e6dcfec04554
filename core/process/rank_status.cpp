#include "levin/core/process/rank_status.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <new>
#include <nlohmann/json.hpp>

#include "levin/core/options/error.h"

namespace levin {

namespace {

template <size_t N>
void write_text(std::array<char, N>& to, const std::string& text) {
  const size_t length = std::min(text.size(), N - 1);
  std::memcpy(to.data(), text.data(), length);
  to[length] = '\0';
}

template <size_t N>
std::string read_text(const std::array<char, N>& from) {
  return {from.data(), ::strnlen(from.data(), N)};
}

// The launcher's page for this rank; null if there is none.
RankPage* inherited_page() {
  const char* descriptor = std::getenv(RankPages::kVariable);
  const char* local_rank = std::getenv("LOCAL_RANK");
  if (descriptor == nullptr || local_rank == nullptr) return nullptr;
  const int fd = std::atoi(descriptor), rank = std::atoi(local_rank);  // some launchers say -1 for one process
  struct stat info = {};
  if (rank < 0 || ::fstat(fd, &info) != 0) return nullptr;
  if (static_cast<size_t>(info.st_size) / sizeof(RankPage) <= static_cast<size_t>(rank)) return nullptr;
  void* memory = ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<RankPage*>(memory) + rank;
}

// Whether an error is a consequence of other ranks' ends.
bool blames_another(const std::string& text) {
  for (const char* part : {"by peer", "nother rank", "remote process exited"}) {
    if (text.find(part) != std::string::npos) return true;
  }
  return false;
}

// torchrun's form: {"message": {"message": …, "extraInfo": {"timestamp": seconds, …}}}. Its report shows the stack.
void write_error_file(const std::string& text) {
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (path == nullptr) return;
  // torchrun takes the earliest error as the cause, and has a resolution of one second.
  const std::time_t when = std::time(nullptr) + (blames_another(text) ? 1 : 0);
  const nlohmann::json extra = {{"py_callstack", text}, {"timestamp", std::to_string(when)}};
  const nlohmann::json error = {{"message", {{"message", text}, {"extraInfo", extra}}}};
  std::ofstream(path) << error.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

int64_t monotonic_now() {
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::string RankPage::text() const {
  std::string text = phase[0] == '\0' ? "before training" : "in " + read_text(phase);
  if (epoch.load() < 0) return text;
  return text + ", epoch " + std::to_string(epoch.load()) + ", batch " + std::to_string(batch.load()) +
         ", global step " + std::to_string(global_step.load());
}

std::string RankPage::waiting_text() const {
  return read_text(waiting);
}

std::string RankPage::error_text() const {
  return failed_at != 0 ? read_text(error) : "";
}

int64_t RankPage::last_saved() const {
  return saves > 0 ? monotonic_now() : std::clamp<int64_t>(saved_at, 0, monotonic_now());
}

RankStatus& RankStatus::instance() {
  static RankStatus status;
  return status;
}

RankStatus::RankStatus() {
  if (RankPage* page = inherited_page()) page_ = page;
}

void RankStatus::set_position(const char* phase, int64_t epoch, int64_t batch, int64_t global_step) {
  page_->epoch.store(epoch, std::memory_order_relaxed);
  page_->batch.store(batch, std::memory_order_relaxed);
  page_->global_step.store(global_step, std::memory_order_relaxed);
  write_text(page_->phase, phase);
  page_->moved_at.store(monotonic_now(), std::memory_order_relaxed);
}

void RankStatus::end_save() {
  page_->saved_at = monotonic_now();
  --page_->saves;
}

void RankStatus::set_waiting(const std::string& text) {
  write_text(page_->waiting, text);
}

void RankStatus::set_error(const std::string& text) {
  if (page_->failed_at.load() != 0) return;
  write_text(page_->error, text);
  page_->failed_at.store(monotonic_now());
  write_error_file(text);
}

bool RankStatus::leave_to_launcher(const std::string& text) {
  if (page_ == &own_ || page_->failed_at.load() == 0 || text != page_->error_text()) return false;
  page_->reported_by_launcher = 1;
  return true;
}

void end_rank(const std::string& text) {
  RankStatus::instance().set_error(text);
  const std::string line = "error: " + text + "\n";
  if (!RankStatus::instance().leave_to_launcher(text)) (void)!::write(STDERR_FILENO, line.data(), line.size());
  ::_exit(1);
}

RankPages::RankPages(int64_t count) : count_(count) {
  const size_t size = static_cast<size_t>(count) * sizeof(RankPage);
  descriptor_ = ::memfd_create("levin rank status", 0);
  void* memory = MAP_FAILED;
  if (descriptor_ >= 0 && ::fchmod(descriptor_, S_IRUSR | S_IWUSR) == 0 &&
      ::ftruncate(descriptor_, static_cast<off_t>(size)) == 0) {
    memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  }
  if (memory == MAP_FAILED) {
    throw Error("launching ranks: no shared memory of " + std::to_string(size) + " bytes: " + std::strerror(errno) +
                ".");
  }
  pages_ = static_cast<RankPage*>(memory);
  clear();
}

RankPages::~RankPages() {
  ::munmap(pages_, static_cast<size_t>(count_) * sizeof(RankPage));
  ::close(descriptor_);
}

void RankPages::clear() {
  for (int64_t k = 0; k < count_; ++k) new (&pages_[k]) RankPage();
}

}  // namespace levin
