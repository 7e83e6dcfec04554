#include "levin/core/process/main_guard.h"

#include <ATen/core/Tensor.h>
#include <cxxabi.h>

#include <string>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/core/options/registry.h"
#include "levin/core/process/console.h"
#include "levin/core/process/rank_status.h"
#include "levin/core/process/stop_signal.h"

namespace levin {

std::string exception_text(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return exception_text(known);
  } catch (...) {
    const std::type_info* type = abi::__cxa_current_exception_type();
    const std::string name = type == nullptr ? "that is unknown" : detail::readable_type_name(*type);
    return "an exception of type " + name + ", which is not a std::exception";
  }
}

std::string exception_text(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  std::string text = of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
  if (text.ends_with("map::at"))
    text += ": a map was asked for a key that it does not hold, e.g. for a metric that was not logged.";
  return text;
}

void detail::warn_of_failure(const char* what, const std::exception_ptr& error) noexcept {
  try {
    const std::string text = exception_text(error);
    Console::instance().warn(what + std::string(" failed: ") + text + (text.ends_with('.') ? "" : "."));
  } catch (...) {  // no memory is left for the text
  }
}

}  // namespace levin

namespace levin::detail {

namespace {

// Reports what ends this process; for several ranks the launcher reports it once.
void report_end(const std::string& text, const std::vector<std::string>& lines) {
  RankStatus& status = RankStatus::instance();
  status.set_error(text);
  if (status.leave_to_launcher(text)) return;
  for (const auto& line : lines) Console::instance().error(line);
}

}  // namespace

int guarded_main(const std::function<int()>& body) {
  try {
    const int status = body();
    ignore_stop_signals();
    return status;
  } catch (const ConfigError& error) {
    report_end(error.what(), error.problems());
    return kExitBadConfig;
  } catch (const Interrupted& error) {
    report_end(error.what(), {error.what()});
    return error.signal_number() == 0 ? kExitStopped : 128 + error.signal_number();
  } catch (const std::exception& error) {
    const std::string text = exception_text(error);
    report_end(text, {text});
  } catch (...) {
    const std::string text = "the run ended with " + exception_text(std::current_exception()) + ".";
    report_end(text, {text});
  }
  return kExitRunFailed;
}

}  // namespace levin::detail
