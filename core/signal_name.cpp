#include "levin/core/signal_name.h"

#include <csignal>
#include <cstring>

namespace levin {

std::string stop_signal_name(int signal_number) {
  if (signal_number == SIGINT) return "Ctrl-C";
  if (signal_number == SIGTERM) return "SIGTERM";
  if (signal_number == SIGHUP) return "SIGHUP";
  if (signal_number == SIGUSR1) return "SIGUSR1";
  return strsignal(signal_number);
}

}  // namespace levin
