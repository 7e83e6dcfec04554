#include "levin/trainer/run/warnings_once.h"

namespace levin {

namespace {

constexpr size_t kMaxTexts = 1000;  // messages that differ in a number in every step must not fill the memory

}  // namespace

WarningsOnce::WarningsOnce() : before_(c10::WarningUtils::get_warning_handler()), guard_(this) {}

void WarningsOnce::process(const c10::Warning& warning) {
  if (seen_.size() < kMaxTexts && seen_.insert(warning.msg()).second) before_->process(warning);
}

}  // namespace levin
