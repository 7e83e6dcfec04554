// Threads of the library, with an error that says more than "Resource temporarily unavailable" where the system refuses
// another one.
#pragma once

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "levin/core/options/error.h"

namespace levin {

/// Returns the error of a thread that the system has refused; `purpose` completes "cannot start a thread that …".
[[nodiscard]] inline Error refused_thread(const std::string& purpose, const std::system_error& error) {
  return Error("cannot start a thread that " + purpose + ": " + error.code().message() +
               ". A limit of processes, threads or memory is reached: raise it (ulimit -u, -v, -d; pids.max of the "
               "container or the job), or use fewer ranks and workers.");
}

/// Returns a thread that runs `body`. Throws Error if the system refuses it; `purpose` completes "cannot start a thread
/// that …".
template <class Body>
[[nodiscard]] std::thread start_thread(const std::string& purpose, Body body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    throw refused_thread(purpose, error);
  }
}

}  // namespace levin
