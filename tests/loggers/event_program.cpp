// Writes what the Python tests of this folder read back.
//
//   event_program tensorboard FOLDER   every kind of value, once; ends as a run that succeeded
//   event_program resume FOLDER        prints "ready" after each phase and waits for a line: steps 0 to 9, state after
//                                       5; then goes back to it in a new logger, and logs steps 6 to 11
//   event_program endless LOGGER FOLDER  rows until it is killed, each written at once; prints each row's step before
#include <torch/types.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

#include "levin/core/options/error.h"
#include "levin/core/process/main_guard.h"
#include "levin/loggers/histogram.h"
#include "levin/loggers/image.h"
#include "levin/loggers/json_lines_logger.h"
#include "levin/loggers/tensorboard_logger.h"

using levin::LogPoint;
using levin::TensorBoardLogger;

namespace event_program {
namespace {

constexpr double kStart = 1700000000.5;

LogPoint at(int64_t step) {
  return {step, kStart + static_cast<double>(step)};
}

double loss(int64_t step) {
  return 1.0 / static_cast<double>(step + 3);
}

levin::ConfigNode some_hparams() {
  auto hparams = levin::ConfigNode::map();
  hparams.set("lr", levin::ConfigNode::scalar("0.001"));
  hparams.set("arch", levin::ConfigNode::scalar("cnn"));
  hparams.set("bias", levin::ConfigNode::scalar("true"));
  auto optimizer = levin::ConfigNode::map();
  optimizer.set("momentum", levin::ConfigNode::scalar("0.9"));
  hparams.set("optimizer", optimizer);
  return hparams;
}

void write_everything(const std::string& folder) {
  TensorBoardLogger logger({.save_dir = folder, .name = "", .version = "run"});
  logger.start("", false);
  logger.own_folder();
  logger.log_hyperparams(some_hparams());
  for (int64_t step = 0; step < 100; ++step) {
    logger.log_metrics({{"train_loss", loss(step)}, {"lr/größe", 1e-3 * static_cast<double>(step)}}, at(step));
  }
  const auto numbers = (torch::arange(1000, torch::kDouble) - 500) / 37;
  logger.log_histogram("weights", levin::histogram_of(numbers), at(7));
  const auto picture = torch::arange(3 * 5 * 7, torch::kByte).reshape({3, 5, 7});
  logger.log_image("digits", levin::image_of(picture), at(7));
  logger.log_text("note", "**bold** \xff and |", at(8));
  logger.log_table("examples", {{"word", "score"}, {{std::string("a|b"), 0.5}, {std::string("c"), 2.0}}}, at(9));
  logger.log_system({{"memory", 123.0}}, at(9));
  logger.log_final_metrics({{"train_loss", loss(99)}, {"val_acc", 0.75}}, at(99));
  logger.finalize("success");
}

void wait_for_line() {
  std::cout << "ready" << std::endl;
  std::string line;
  std::getline(std::cin, line);
}

void resume(const std::string& folder) {
  const levin::TensorBoardLoggerOptions options{.save_dir = folder, .name = "", .version = "run", .flush_secs = 0};
  levin::State state;
  {
    TensorBoardLogger logger(options);
    logger.start("", false);
    logger.own_folder();
    for (int64_t step = 0; step < 10; ++step) {
      logger.log_metrics({{"train_loss", loss(step)}}, at(step));
      if (step == 5) state = logger.state_dict();
    }
    logger.log_metrics({{"val_loss", 1}}, at(5));  // of a step that stays, but logged after the checkpoint
  }
  wait_for_line();
  TensorBoardLogger logger(options);
  logger.start("", true);
  logger.own_folder();
  logger.load_state_dict(state);
  logger.log_metrics({{"val_loss", 1}}, at(5));
  for (int64_t step = 6; step < 12; ++step) logger.log_metrics({{"train_loss", 2 + loss(step)}}, at(step));
  logger.save();
  wait_for_line();
}

void log_for_ever(const std::string& kind, const std::string& folder) {
  std::unique_ptr<levin::Logger> logger;
  if (kind == "tensorboard") {
    logger = std::make_unique<TensorBoardLogger>(
        levin::TensorBoardLoggerOptions{.save_dir = folder, .name = "", .version = "run", .flush_secs = 0});
  } else {
    logger = std::make_unique<levin::JSONLinesLogger>(
        levin::JSONLinesLoggerOptions{.save_dir = folder, .name = "", .version = "run", .flush_secs = 0});
  }
  logger->start("", false);
  logger->own_folder();
  for (int64_t step = 0;; ++step) {
    logger->log_metrics({{"train_loss", loss(step)}}, at(step));
    std::printf("%lld\n", static_cast<long long>(step));  // a pipe that nobody reads in time slows it down
    std::fflush(stdout);
  }
}

}  // namespace

int run_program(int argc, char** argv) {
  return levin::main_guard([&] {
    const std::string what = argc > 2 ? argv[1] : "";
    if (what == "tensorboard") return write_everything(argv[2]);
    if (what == "resume") return resume(argv[2]);
    if (what == "endless" && argc > 3) return log_for_ever(argv[2], argv[3]);
    throw levin::Error("usage: event_program tensorboard|resume FOLDER, or endless LOGGER FOLDER.");
  });
}

}  // namespace event_program
