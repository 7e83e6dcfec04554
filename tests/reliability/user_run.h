// A user's program made of the parts in faulty_parts.h, and what came of it.
#pragma once

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "levin/callbacks/model_checkpoint.h"
#include "levin/core/options/registry.h"
#include "levin/core/random.h"
#include "levin/levin.h"
#include "reliability/faulty_parts.h"
#include "support/captured_console.h"

namespace levin::test {

/// Creates temporary folders in memory, unless TMPDIR says otherwise: the runs of these tests, of which there are a
/// thousand with six checkpoints each, would wait for the disk for nine tenths of their time.
inline const bool kFoldersInMemory =
    ::access("/dev/shm", W_OK) == 0 && ::setenv("TMPDIR", "/dev/shm", /*overwrite=*/0) == 0;

/// How the run trains.
struct Variant {
  std::string name = "single";
  std::string strategy = "single_device";
  int64_t devices = 1;
  bool records = false;
  int64_t workers = 0;
  int64_t accumulate = 1;
  bool needs_closure = false;
  bool own_plugins = false;  // strategy, precision and profiler are the user's
  bool data_module = true;   // false: the module has the loaders
  bool async_save = true;
};

enum class Entry { fit, resume, validate, test, predict };
inline constexpr std::array kEntries{Entry::fit, Entry::resume, Entry::validate, Entry::test, Entry::predict};

inline const char* entry_name(Entry entry) {
  constexpr std::array kNames{"fit", "resume", "validate", "test", "predict"};
  return kNames[static_cast<size_t>(entry)];
}

/// A user's program: its module, data, logger and callback, and a trainer.
struct UserRun {
  UserRun(Variant how, std::string where, bool resumes = false)
      : variant(std::move(how)), folder(std::move(where)), auto_resume(resumes), data(variant.workers) {
    seed_everything(1);
    if (variant.records) {
      module = std::make_shared<FaultyModule>(variant.needs_closure);
      callback = std::make_shared<FaultyCallback>();
    } else {
      module = std::make_shared<FaultyStepModule>(variant.needs_closure);
      callback = std::make_shared<FaultyStepCallback>();
    }
    module->artifact = folder + "/artifact.txt";
    if (!variant.data_module) module->loaders = &data;
    std::ofstream(module->artifact) << "an artifact";
    logger = std::make_shared<FaultyLogger>(folder + "/logs");
  }

  [[nodiscard]] TrainerOptions options() const {
    TrainerOptions options;
    options.max_epochs = 2;
    options.num_threads = 1;
    options.enable_progress_bar = false;
    options.enable_model_summary = false;
    options.log_every_n_steps = 1;
    options.default_root_dir = folder;
    options.auto_resume = auto_resume;
    options.logger = LoggerChoice(logger);
    options.callbacks = {callback, ModelCheckpoint({.dirpath = folder + "/checkpoints",
                                                    .save_last = true,
                                                    .save_top_k = -1,
                                                    .every_n_train_steps = 1,
                                                    .async_save = variant.async_save})};
    options.accumulate_grad_batches = variant.accumulate;
    options.record_steps = variant.records;
    options.devices = variant.devices;
    options.strategy = variant.strategy;
    if (variant.own_plugins) {
      options.strategy = std::make_shared<FaultyStrategy>();
      options.precision = std::make_shared<FaultyPrecision>();
      options.profiler = std::make_shared<FaultyProfiler>();
    }
    return options;
  }

  void run(Entry entry, const std::string& ckpt_path = "") {
    if (trainer == nullptr) trainer = std::make_unique<Trainer>(options());
    if (!variant.data_module) {
      if (entry == Entry::fit || entry == Entry::resume) return trainer->fit(*module, ckpt_path);
      if (entry == Entry::validate) (void)trainer->validate(*module, ckpt_path);
      if (entry == Entry::test) (void)trainer->test(*module, ckpt_path);
      if (entry == Entry::predict) (void)trainer->predict(*module, PredictOptions{ckpt_path});
      return;
    }
    if (entry == Entry::fit || entry == Entry::resume) return trainer->fit(*module, data, ckpt_path);
    if (entry == Entry::validate) (void)trainer->validate(*module, data, ckpt_path);
    if (entry == Entry::test) (void)trainer->test(*module, data, ckpt_path);
    if (entry == Entry::predict) (void)trainer->predict(*module, data, ckpt_path);
  }

  [[nodiscard]] at::Tensor weights() const {
    const at::NoGradGuard no_grad;
    return torch::cat({module->layer->weight.flatten(), module->layer->bias}).clone();
  }

  Variant variant;
  std::string folder;
  bool auto_resume;
  std::shared_ptr<FaultyModule> module;
  std::shared_ptr<FaultyCallback> callback;
  std::shared_ptr<FaultyLogger> logger;
  FaultyData data;
  std::unique_ptr<Trainer> trainer = nullptr;
};

struct Outcome {
  std::string type = "";  // of the exception; "": none
  std::string text = "";
  std::string console = "";
  std::exception_ptr error = nullptr;
  [[nodiscard]] std::string all() const { return text + "\n" + console; }
};

inline Outcome outcome_of(const std::function<void()>& action) {
  Outcome outcome;
  const CapturedConsole console;
  try {
    action();
  } catch (const std::exception& error) {
    outcome.type = detail::readable_type_name(typeid(error));
    outcome.text = error.what();
    outcome.error = std::current_exception();
  } catch (const int) {
    outcome.type = "int";
    outcome.error = std::current_exception();
  }
  outcome.console = console.text();
  return outcome;
}

}  // namespace levin::test
