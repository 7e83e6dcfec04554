// A shared library of a user that trains with Levin, for a program that does not link Levin (plugin_host.cpp). It is
// built twice, as two plugins.
#include <ATen/Parallel.h>

#include <exception>
#include <string>

#include "embedding/small_training.h"
#include "levin/loggers/csv_logger.h"

/// Trains and returns the weights, or "error: …". Valid until the next call.
extern "C" const char* train_plugin(const char* folder) {
  static std::string result;
  try {
    const int threads = at::get_num_threads();
    levin::test::SmallNet net;
    levin::test::train_small(
        net, {.loggers = levin::CSVLogger({.save_dir = folder, .name = "", .version = "run"}), .record_steps = true},
        folder);
    result = at::get_num_threads() == threads ? net.text() : "error: the number of threads has changed";
  } catch (const std::exception& error) {
    result = std::string("error: ") + error.what();
  }
  return result.c_str();
}
