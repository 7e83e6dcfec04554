#include "levin/loggers/disk_patience.h"

#include <algorithm>

#include "levin/core/console.h"
#include "levin/core/count_of.h"

namespace levin {

namespace {

constexpr int64_t kMostLeftOut = 4095;

std::string capitalized(std::string word) {
  if (!word.empty() && word[0] >= 'a' && word[0] <= 'z') word[0] = static_cast<char>(word[0] - 'a' + 'A');
  return word;
}

}  // namespace

void DiskPatience::failed(const std::string& cause) {
  if (!std::exchange(failing_, true)) {
    Console::instance().error(logger_ + ": " + cause + " " + capitalized(unit_) +
                              "s are kept in memory until they can be written; training continues.");
  }
  cause_ = cause;
  leave_out_ = std::min(2 * leave_out_ + 1, kMostLeftOut);
  left_out_ = 0;
}

void DiskPatience::wrote(const std::string& path, int64_t count) {
  left_out_ = leave_out_ = 0;
  if (!std::exchange(failing_, false)) return;
  const int64_t lost = std::exchange(lost_, 0);
  Console::instance().print(
      logger_ + ": " + path + " can be written again. It has the " + count_of(count, unit_) + " that waited" +
      (lost > 0 ? "; " + count_of(lost, unit_ + " before them is", unit_ + "s before them are") + " lost." : "."));
}

void DiskPatience::give_up() {
  left_out_ = leave_out_ = 0;
  const int64_t lost = std::exchange(lost_, 0);
  if (!std::exchange(failing_, false) || lost == 0) return;
  Console::instance().error(logger_ + ": " + count_of(lost, lost_name_.first + " is", lost_name_.second + " are") +
                            " lost: " + cause_);
}

}  // namespace levin
