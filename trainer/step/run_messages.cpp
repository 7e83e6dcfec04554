#include "levin/trainer/step/run_messages.h"

#include <utility>

#include "levin/core/process/console.h"

namespace levin {

namespace {

thread_local const GuestMessages* guest_of_thread = nullptr;

}  // namespace

void note_of_run(std::string text) {
  if (guest_of_thread == nullptr) return Console::instance().print(text);
  if (Console::instance().rank() == 0) Console::instance().warn(guest_of_thread->reworded(std::move(text)));
}

void warn_of_run(std::string text) {
  Console::instance().warn(guest_of_thread == nullptr ? text : guest_of_thread->reworded(std::move(text)));
}

GuestMessages::GuestMessages(const std::string& call, Reword reword)
    : call_(call), reword_(reword), outer_(std::exchange(guest_of_thread, this)) {}

GuestMessages::~GuestMessages() {
  guest_of_thread = outer_;
}

std::string GuestMessages::reworded(std::string text) const {
  return reword_(call_, std::move(text));
}

}  // namespace levin
