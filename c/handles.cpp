#include "levin/c/handles.h"

#include <utility>

namespace levin::c {

namespace {

const char* name_of(HandleKind kind) {
  return kind == HandleKind::run ? "run" : "tensor";
}

}  // namespace

Handles& Handles::instance() {
  static auto* handles = new Handles;
  return *handles;
}

void* Handles::add(HandleKind kind, std::shared_ptr<void> object) {
  const std::lock_guard lock(mutex_);
  entries_.emplace(next_, Entry{kind, std::move(object)});
  return reinterpret_cast<void*>(std::exchange(next_, next_ + kStep));  // NOLINT(performance-no-int-to-ptr)
}

Handles::Entries::const_iterator Handles::checked(HandleKind kind, const void* handle) const {
  const std::string name = name_of(kind);
  const auto number = reinterpret_cast<uintptr_t>(handle);
  if (handle == nullptr) throw InvalidArgument("the " + name + " is null. Pass a handle that a function has returned.");
  const auto found = entries_.find(number);
  if (found == entries_.end()) {
    const bool was_freed = number >= kFirst && number < next_ && (number - kFirst) % kStep == 0;
    throw InvalidArgument("the " + name + (was_freed ? " was freed." : " is not a handle.") +
                          " Pass a handle that a function has returned, until it is freed.");
  }
  if (found->second.kind == kind) return found;
  throw InvalidArgument("the handle is of a " + std::string(name_of(found->second.kind)) + ". Pass a " + name + ".");
}

std::shared_ptr<void> Handles::find(HandleKind kind, const void* handle) const {
  const std::lock_guard lock(mutex_);
  return checked(kind, handle)->second.object;
}

std::shared_ptr<void> Handles::take(HandleKind kind, const void* handle) {
  const std::lock_guard lock(mutex_);
  const auto found = checked(kind, handle);
  std::shared_ptr<void> object = found->second.object;
  entries_.erase(found);
  return object;
}

int64_t Handles::count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(entries_.size());
}

}  // namespace levin::c
