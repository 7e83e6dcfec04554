// A program with its own spdlog and libfmt, which trains with Levin. Prints the state of its log after the training.
//   logging_host FOLDER
#include <iostream>

#include "embedding/host_log.h"
#include "embedding/small_training.h"
#include "levin/core/process/console.h"
#include "levin/core/process/log.h"
#include "levin/loggers/csv_logger.h"

int main(int, char** argv) {
  host_log::start();
  levin::test::SmallNet net;
  levin::test::train_small(net, {.loggers = levin::CSVLogger({.save_dir = argv[1], .name = "", .version = "run"})},
                           argv[1]);
  levin::log::warn("from {} {:.2f}", "Levin", 0.5);
  std::cout << host_log::state() << "\n";
  return 0;
}
