// The body of main: whatever ends it is reported in one line, and becomes an exit status that shells and schedulers
// understand.
//
//   int main() {
//     return levin::main_guard([] {
//       Classifier model;
//       levin::Trainer().fit(model, levin::FashionMnist());
//     });
//   }
#pragma once

#include <functional>
#include <type_traits>

#include "levin/core/exit_codes.h"

namespace levin {

namespace detail {
[[nodiscard]] int guarded_main(const std::function<int()>& body);
}

/// Runs `body`, which returns an exit status or nothing (then 0), and returns it. An exception is printed on standard
/// error, and its status returned: see ExitCode. Ctrl-C and SIGTERM arrive as Interrupted, after the checkpoint.
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
