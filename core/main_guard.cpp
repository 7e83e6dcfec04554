#include "levin/core/main_guard.h"

#include "levin/core/console.h"
#include "levin/core/error.h"
#include "levin/core/exception_text.h"

namespace levin::detail {

int guarded_main(const std::function<int()>& body) {
  Console& console = Console::instance();
  try {
    return body();
  } catch (const ConfigError& error) {
    for (const auto& problem : error.problems()) console.error(problem);
    return kExitBadConfig;
  } catch (const Interrupted& error) {
    console.error(error.what());
    return error.signal_number() == 0 ? kExitStopped : 128 + error.signal_number();
  } catch (const std::exception& error) {
    console.error(error.what());
  } catch (...) {
    console.error("the run ended with " + exception_text(std::current_exception()) + ".");
  }
  return kExitRunFailed;
}

}  // namespace levin::detail
