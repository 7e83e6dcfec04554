// The body of main: an exception that ends it is reported in one line, and becomes an exit status that shells and
// schedulers understand.
//
//   int main() {
//     return levin::main_guard([] {
//       Classifier model;
//       levin::Trainer().fit(model, levin::FashionMnist());
//     });
//   }
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <type_traits>

namespace levin {

// The program's exit statuses; docs/configuration.md lists them too.

enum ExitCode : int {
  kExitOk = 0,
  kExitRunFailed = 1,      // the run started and failed: an exception in the module, a full disk, a lost rank
  kExitBadConfig = 2,      // nothing was run because of a mistake on the command line or in the configuration
  kExitStopped = 3,        // a file called "stop" in the run's folder; like the next four: with a checkpoint
  kExitPartly = 4,         // levin convert: the file was written, without the parts that could not be translated
  kExitHangup = 129,       // SIGHUP (128 + 1): the terminal closed
  kExitInterrupted = 130,  // Ctrl-C (128 + SIGINT), as shells report it
  kExitUser1 = 138,        // SIGUSR1 (128 + 10): a scheduler's warning
  kExitTerminated = 143,   // SIGTERM (128 + 15): a scheduler took the machine back
};

// Messages of exceptions, also of exceptions that are not a std::exception.

/// Returns what(), or "an exception of type int, which is not a std::exception".
[[nodiscard]] std::string exception_text(const std::exception_ptr& error);

/// Returns what() without the stack that LibTorch adds to it; explains the standard library's bare "map::at".
[[nodiscard]] std::string exception_text(const std::exception& error);

namespace detail {
void warn_of_failure(const char* what, const std::exception_ptr& error) noexcept;
[[nodiscard]] int guarded_main(const std::function<int()>& body);
}  // namespace detail

/// Runs `action`, for destructors: logs a warning that names `what` if it throws.
template <class Action>
void warn_if_it_throws(const char* what, Action action) noexcept {
  try {
    action();
  } catch (...) {
    detail::warn_of_failure(what, std::current_exception());
  }
}

/// Runs `body` and returns its exit status (0 if it returns nothing). An exception is printed on standard
/// error, and becomes a status of ExitCode. Ctrl-C and SIGTERM arrive as Interrupted, after the checkpoint.
template <class Body>
[[nodiscard]] int main_guard(Body&& body) {
  if constexpr (std::is_void_v<std::invoke_result_t<Body>>) {
    return detail::guarded_main([&] {
      body();
      return kExitOk;
    });
  } else {
    return detail::guarded_main([&]() -> int { return body(); });
  }
}

}  // namespace levin
