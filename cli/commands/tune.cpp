#include "levin/cli/commands/tune.h"

#include <memory>
#include <utility>

#include "levin/cli/commands/help_text.h"
#include "levin/cli/commands/report.h"
#include "levin/cli/config/arguments.h"
#include "levin/cli/config/resolve_run.h"
#include "levin/cli/config/run_parts.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/main_guard.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

constexpr const char* kNothingTried = "nothing was tried. See levin tune --help.";

std::string tune_usage(int width) {
  return "levin tune --config FILE… [--batch_size] [--lr] [options] [overrides…]\n\n" +
         wrapped(
             "Finds the largest batch that fits into memory and a learning rate for the run, and trains nothing. "
             "Options of the searches are written --batch_size_finder.NAME=VALUE and --lr_finder.NAME=VALUE.",
             width) +
         "\nbatch_size_finder\n" + options_table(describe_options<BatchSizeFinderOptions>(), width) + "\nlr_finder\n" +
         options_table(describe_options<LearningRateFinderOptions>(), width);
}

// After the finders: ends the fit before its first batch.
class EndOfSearch final : public Callback {
 public:
  void on_fit_start(Trainer& trainer, LightningModule&) override { trainer.request_stop("levin tune"); }
};

// The run's options without logs, checkpoints, validation and limits.
TrainerOptions for_search(TrainerOptions options, Callbacks finders) {
  options.callbacks = std::move(finders);
  options.callbacks.push_back(std::make_shared<EndOfSearch>());
  options.logger = false;
  options.enable_checkpointing = options.enable_progress_bar = options.enable_model_summary = false;
  options.min_epochs = options.min_steps = std::nullopt;
  options.max_time = std::nullopt;
  options.profiler = Component<Profiler>();
  options.limit_val_batches = int64_t{0};
  options.num_sanity_val_steps = 0;
  options.auto_resume = options.record_steps = options.cuda_graph = false;
  options.fast_dev_run = false;
  return options;
}

void print_batch_size(const BatchSizeFinder& finder) {
  const std::string found = std::to_string(finder.found().value_or(0));
  Console::instance().print("batch size: " + found + " (configured: " + std::to_string(finder.configured()) +
                            "). Write data: {init_args: {batch_size: " + found + "}}, or --data.batch_size=" + found +
                            ".");
}

void print_learning_rate(const LearningRateFinder& finder, const RunConfig& config) {
  if (!finder.suggestion()) return;
  const std::string found = short_number(*finder.suggestion());
  Console::instance().print("learning rate: " + found + ". Write " +
                            (config.optimizer
                                 ? "optimizer: {init_args: {lr: " + found + "}}, or --optimizer.lr=" + found
                                 : "it into the model's options, or give the run file an optimizer") +
                            ".");
}

}  // namespace

int run_tune(const std::vector<std::string>& arguments, int width) {
  Problems problems;
  TuneOptions options;
  const SplitArguments read = read_own_options(arguments, options, problems);
  if (read.help) return print_usage(tune_usage(width));
  const ResolvedRun run = resolve_fit_arguments(read.rest, RunPlace::here, problems).run;
  if (!problems.empty()) return report_problems(problems, kNothingTried);

  const RunParts parts = make_parts(run.config);
  const bool both = !options.batch_size && !options.lr;
  Callbacks finders;
  const auto sizes = std::make_shared<BatchSizeFinder>(options.batch_size_finder);
  const auto rates = std::make_shared<LearningRateFinder>(options.lr_finder);
  if (both || options.batch_size) finders.push_back(sizes);
  if (both || options.lr) finders.push_back(rates);
  Trainer trainer(for_search(run.trainer, std::move(finders)));
  if (run.config.weights) trainer.start_from(*run.config.weights);
  fit(trainer, parts);
  if (both || options.batch_size) print_batch_size(*sizes);
  if (both || options.lr) print_learning_rate(*rates, run.config);
  return kExitOk;
}

}  // namespace levin
