#include "levin/core/main_guard.h"

#include <string>
#include <vector>

#include "levin/core/console.h"
#include "levin/core/error.h"
#include "levin/core/exception_text.h"
#include "levin/core/rank_status.h"
#include "levin/core/stop_signal.h"

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
