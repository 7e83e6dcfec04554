// The handles of the C interface. A handle is a number in place of an address, and no number is given twice, so a
// handle that was freed, or that never was one, is found out instead of followed.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "levin/core/options/error.h"

namespace levin::c {

/// An argument that a function cannot take: LEVIN_INVALID_ARGUMENT.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

enum class HandleKind { run, tensor };

/// The objects that handles stand for. Thread-safe.
class Handles {
 public:
  /// The table of the process. It is never destroyed: objects that a program does not free outlive its exit.
  static Handles& instance();

  /// Returns a new handle of `object`, which find() returns until the handle is freed.
  void* add(HandleKind kind, std::shared_ptr<void> object);
  /// Throws InvalidArgument, with what the handle is, unless it is one of this kind that was not freed.
  [[nodiscard]] std::shared_ptr<void> find(HandleKind kind, const void* handle) const;
  /// Frees the handle, and returns its object. Throws as find() does.
  [[nodiscard]] std::shared_ptr<void> take(HandleKind kind, const void* handle);
  [[nodiscard]] int64_t count() const;

 private:
  struct Entry {
    HandleKind kind;
    std::shared_ptr<void> object;
  };
  using Entries = std::unordered_map<uintptr_t, Entry>;
  [[nodiscard]] Entries::const_iterator checked(HandleKind kind, const void* handle) const;

  // Odd, as the address of no object that malloc returns.
  static constexpr uintptr_t kFirst = 0x10001;
  static constexpr uintptr_t kStep = 2;

  mutable std::mutex mutex_ = {};
  Entries entries_ = {};
  uintptr_t next_ = kFirst;
};

}  // namespace levin::c
