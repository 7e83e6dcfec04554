// Threads of the library, with an error that says more than "Resource temporarily unavailable" where the system refuses
// another one.
#pragma once

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "levin/core/options/error.h"

namespace levin {

/// Returns a thread that runs `body`. Throws Error if the system refuses it; `purpose` completes "cannot start a thread
/// that …".
template <class Body>
[[nodiscard]] std::thread start_thread(const std::string& purpose, Body body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    throw Error("cannot start a thread that " + purpose + ": " + error.code().message() +
                ". A limit of processes and threads is reached: raise it (ulimit -u; pids.max of the container or the "
                "job), or use fewer ranks and workers.");
  }
}

}  // namespace levin
