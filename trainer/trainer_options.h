// The options of a Trainer: Lightning 2.6's arguments, names and defaults. "auto" and unset are allowed here;
// resolve_plan (run_plan.h) turns them into numbers once, before anything runs.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/core/options/registry.h"
#include "levin/core/options/units.h"
#include "levin/core/process/log.h"
#include "levin/loggers/logger.h"
#include "levin/precision/precision.h"
#include "levin/profilers/profiler.h"
#include "levin/recompute/recompute_options.h"
#include "levin/strategies/strategy.h"
#include "levin/trainer/callback.h"

namespace levin {

/// A number of batches, steps or epochs that is unlimited or unknown.
inline constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

using Callbacks = ComponentList<Callback>;

/// Returns the check of an option that is a bool or this word.
[[nodiscard]] inline auto bool_or(const char* word) {
  return [word](const std::variant<bool, std::string>& value) {
    const auto* text = std::get_if<std::string>(&value);
    return text == nullptr || *text == word;
  };
}

/// A number of batches (int) or a fraction of them (float from 0 to 1): 1 and 1.0 differ.
using BatchLimit = std::variant<int64_t, double>;

/// When to validate: after this many batches (int), after this fraction of an epoch (float), or after a period.
using CheckInterval = std::variant<int64_t, double, Period>;

/// How gradients are clipped: all of them by their total norm, or each element by its absolute value.
enum class ClipAlgorithm { norm, value };
template <>
struct EnumNames<ClipAlgorithm> {
  static constexpr EnumName<ClipAlgorithm> names[] = {{"norm", ClipAlgorithm::norm}, {"value", ClipAlgorithm::value}};
};

/// What happens when a training loss, or a gradient, is nan or inf: the run stops before the update, skips the update,
/// goes back to the newest checkpoint, or updates anyway. Lightning ignores it; here the default is stop, because
/// otherwise the weights are lost.
enum class NonFiniteLoss { stop, skip, rollback, ignore };
template <>
struct EnumNames<NonFiniteLoss> {
  static constexpr EnumName<NonFiniteLoss> names[] = {{"stop", NonFiniteLoss::stop},
                                                      {"skip", NonFiniteLoss::skip},
                                                      {"rollback", NonFiniteLoss::rollback},
                                                      {"ignore", NonFiniteLoss::ignore}};
};

/// The precision of float32 matrix products, which may be reduced for speed: full, TensorFloat-32 (10 bits), or
/// bfloat16 (7 bits) if that is faster on the device. PyTorch's set_float32_matmul_precision.
enum class MatmulPrecision { highest, high, medium };
template <>
struct EnumNames<MatmulPrecision> {
  static constexpr EnumName<MatmulPrecision> names[] = {
      {"highest", MatmulPrecision::highest}, {"high", MatmulPrecision::high}, {"medium", MatmulPrecision::medium}};
};

/// Samples of all devices per optimizer step: as many batches as necessary are accumulated.
struct EffectiveBatchSize {
  int64_t effective_batch_size = 0;

  template <class = void>
  static auto fields() {
    return levin::fields(field("effective_batch_size", &EffectiveBatchSize::effective_batch_size,
                               "samples of all devices per optimizer step")
                             .min(1));
  }
};

/// How learning rates, written for one batch on one device, follow the samples of an optimizer step: not at all, in
/// proportion (Goyal 2017), or with the square root (Krizhevsky 2014).
enum class LrScale { none, linear, sqrt };
template <>
struct EnumNames<LrScale> {
  static constexpr EnumName<LrScale> names[] = {
      {"none", LrScale::none}, {"linear", LrScale::linear}, {"sqrt", LrScale::sqrt}};
};

/// The loggers of a run. true: a CSV logger; false: none; or one logger, or a list of them.
struct LoggerChoice {
  bool enabled = true;
  ComponentList<Logger> loggers = {};

  LoggerChoice() = default;
  LoggerChoice(bool on) : enabled(on) {}  // NOLINT(google-explicit-constructor)
  LoggerChoice(std::initializer_list<Component<Logger>> list) : loggers(list) {}
  template <class T>
  requires std::derived_from<std::decay_t<T>, Logger> LoggerChoice(T&& logger)
      : loggers{Component<Logger>(std::forward<T>(logger))} {}  // NOLINT
  template <class T>
  requires std::derived_from<T, Logger> LoggerChoice(std::shared_ptr<T> logger)
      : loggers{Component<Logger>(std::move(logger))} {}  // NOLINT
};

template <>
struct ValueType<LoggerChoice> {
  static std::string name() { return "bool or list of loggers"; }
  static bool read(const ConfigNode& node, LoggerChoice& value, const std::string& path, Problems& problems);
  static ConfigNode write(const LoggerChoice& value);
};

/// For devices = gpus({0, 2}): the GPUs with these indices.
[[nodiscard]] inline std::vector<int64_t> gpus(std::vector<int64_t> indices) {
  return indices;
}

/// The options of a Trainer, as in a run file under `trainer`. Arguments of Lightning keep their names and
/// defaults. fields() describes each option; `levin help trainer` prints the descriptions. The Trainer's constructor
/// checks the options.
struct TrainerOptions {
  std::optional<int64_t> max_epochs = std::nullopt;
  std::optional<int64_t> min_epochs = std::nullopt;
  int64_t max_steps = -1;
  std::optional<int64_t> min_steps = std::nullopt;
  std::optional<Seconds> max_time = std::nullopt;
  std::string accelerator = "auto";
  std::variant<int64_t, std::string, std::vector<int64_t>, std::vector<std::string>> devices = "auto";
  int64_t num_nodes = 1;
  Component<Strategy> strategy = "auto";
  bool use_distributed_sampler = true;
  bool sync_batchnorm = false;
  int64_t max_restarts = 0;
  bool oversubscribe = false;
  std::variant<int64_t, std::string> num_threads = "auto";
  Seconds upload_every = std::chrono::seconds(30);
  Seconds stop_grace = std::chrono::seconds(25);
  Component<Precision> precision = "32-true";
  std::variant<int64_t, EffectiveBatchSize> accumulate_grad_batches = 1;
  std::optional<std::variant<int64_t, std::string>> micro_batch_size = std::nullopt;
  EnumOption<LrScale> lr_scale = LrScale::none;
  RecomputeChoice recompute = {};
  std::optional<double> gradient_clip_val = std::nullopt;
  EnumOption<ClipAlgorithm> gradient_clip_algorithm = ClipAlgorithm::norm;
  std::optional<BatchLimit> limit_train_batches = std::nullopt;
  std::optional<BatchLimit> limit_val_batches = std::nullopt;
  std::optional<BatchLimit> limit_test_batches = std::nullopt;
  std::optional<BatchLimit> limit_predict_batches = std::nullopt;
  BatchLimit overfit_batches = 0.0;
  std::variant<bool, int64_t> fast_dev_run = false;
  std::optional<CheckInterval> val_check_interval = std::nullopt;
  std::optional<int64_t> check_val_every_n_epoch = 1;
  std::optional<int64_t> num_sanity_val_steps = std::nullopt;
  std::optional<int64_t> log_every_n_steps = std::nullopt;
  LoggerChoice logger = true;
  levin::log::LogOptions log = {};
  Callbacks callbacks = {};
  std::optional<bool> enable_checkpointing = std::nullopt;
  std::optional<bool> enable_progress_bar = std::nullopt;
  std::optional<bool> enable_model_summary = std::nullopt;
  std::string default_root_dir = "";
  std::variant<bool, std::string> auto_resume = false;
  bool auto_requeue = true;
  EnumOption<NonFiniteLoss> nonfinite_loss = NonFiniteLoss::stop;
  std::variant<bool, std::string> deterministic = false;
  std::optional<bool> benchmark = std::nullopt;
  std::optional<EnumOption<MatmulPrecision>> float32_matmul_precision = std::nullopt;
  bool channels_last = false;
  std::variant<bool, std::string> record_steps = false;
  bool cuda_graph = false;
  bool inference_mode = true;
  bool detect_anomaly = false;
  Component<Profiler> profiler = {};
  bool barebones = false;
  int64_t reload_dataloaders_every_n_epochs = 0;

  template <class = void>
  static auto fields() {
    using O = TrainerOptions;
    auto is_share = [](const auto& limit) {  // a period was checked when it was read
      if (const auto* count = std::get_if<int64_t>(&limit)) return *count >= 0;
      const auto* part = std::get_if<double>(&limit);
      return part == nullptr || (*part >= 0.0 && *part <= 1.0);
    };
    auto share = [is_share](const auto& limit) {
      if constexpr (std::is_same_v<std::decay_t<decltype(limit)>, BatchLimit>) return is_share(limit);
      if constexpr (!std::is_same_v<std::decay_t<decltype(limit)>, BatchLimit>) return !limit || is_share(*limit);
    };
    const char* share_rule = "a whole number of batches >= 0, or a share from 0.0 to 1.0";
    auto at_least = [](int64_t low) { return [low](const std::optional<int64_t>& n) { return !n || *n >= low; }; };
    return levin::fields(
        field("max_epochs", &O::max_epochs,
              "stop after this many epochs; -1: no limit; unset: 1000, or no limit with max_steps or max_time")
            .check(at_least(-1), ">= -1"),
        field("min_epochs", &O::min_epochs, "train at least this many epochs, even if a stop is requested")
            .check(at_least(0), ">= 0"),
        field("max_steps", &O::max_steps, "stop after this many optimizer steps; -1: no limit").min(-1),
        field("min_steps", &O::min_steps, "take at least this many optimizer steps, even if a stop is requested")
            .check(at_least(0), ">= 0"),
        field("max_time", &O::max_time, "stop after this time: DD:HH:MM:SS or 90min"),
        field("accelerator", &O::accelerator,
              "cpu, gpu (or cuda), auto (a GPU if there is one), or another backend of LibTorch by name"),
        field("devices", &O::devices,
              "auto, a number of devices (-1: all GPUs), the GPUs' indices as a list or as text like 0,1, or a list of "
              "the "
              "word cpu"),
        field("num_nodes", &O::num_nodes, "number of machines").min(1),
        field("strategy", &O::strategy,
              "how devices work together: auto, single_device, ddp, fsdp, dp, dp_balanced or ModelParallel"),
        field("use_distributed_sampler", &O::use_distributed_sampler,
              "give each rank its share of the samples; false: the loaders do that themselves"),
        field("sync_batchnorm", &O::sync_batchnorm, "batch normalization over the batches of all ranks"),
        field("max_restarts", &O::max_restarts,
              "restart all ranks from the last checkpoint if one dies, at most this many times")
            .min(0),
        field("oversubscribe", &O::oversubscribe, "allow more ranks on this machine than it has cores"),
        field("num_threads", &O::num_threads,
              "threads of each operator on the CPU, in each rank; auto: the first steps of a fit are timed with "
              "different "
              "numbers, and the fastest is kept, unless OMP_NUM_THREADS is set")
            .check(
                [](const std::variant<int64_t, std::string>& v) {
                  if (const auto* word = std::get_if<std::string>(&v)) return *word == "auto";
                  return std::get<int64_t>(v) >= 1;
                },
                ">= 1, or auto"),
        field(
            "upload_every", &O::upload_every,
            "default_root_dir: s3://…: time after which changed logs are copied there; checkpoints are copied at once")
            .check([](const Seconds& t) { return t.count() > 0; }, "> 0"),
        field("stop_grace", &O::stop_grace, "time after SIGTERM or SIGHUP until a run that hangs is killed; 0: never")
            .check([](Seconds span) { return span.count() >= 0; }, ">= 0"),
        field("precision", &O::precision,
              "number format: 32-true, 64-true, bf16-true, 16-true, bf16-mixed, 16-mixed, or MixedPrecision"),
        field("accumulate_grad_batches", &O::accumulate_grad_batches,
              "batches per optimizer step, or its number of samples: {effective_batch_size: 256}")
            .check(
                [](const std::variant<int64_t, EffectiveBatchSize>& v) {
                  return std::holds_alternative<EffectiveBatchSize>(v) || std::get<int64_t>(v) >= 1;
                },
                ">= 1"),
        field("micro_batch_size", &O::micro_batch_size,
              "samples per forward and backward pass, if batches are to be split; auto: as many as fit into memory")
            .check(
                [](const std::optional<std::variant<int64_t, std::string>>& v) {
                  if (!v) return true;
                  if (const auto* word = std::get_if<std::string>(&*v)) return *word == "auto";
                  return std::get<int64_t>(*v) >= 1;
                },
                ">= 1, or auto"),
        field("lr_scale", &O::lr_scale,
              "learning rates follow the samples of an optimizer step (batch size x ranks x accumulated batches) over "
              "the configured batch size: none, linear or sqrt"),
        field("recompute", &O::recompute,
              "compute parts of the forward pass again in backward instead of keeping them: modules, checkpoints, "
              "budget or auto"),
        field("gradient_clip_val", &O::gradient_clip_val, "maximum gradient norm (or value); 0 or unset: no clipping")
            .check([](const std::optional<double>& v) { return !v || *v >= 0; }, ">= 0"),
        field("gradient_clip_algorithm", &O::gradient_clip_algorithm, "clip the norm of all gradients, or each value"),
        field("limit_train_batches", &O::limit_train_batches, "batches of a training epoch").check(share, share_rule),
        field("limit_val_batches", &O::limit_val_batches, "batches of a validation, per loader")
            .check(share, share_rule),
        field("limit_test_batches", &O::limit_test_batches, "batches of a test, per loader").check(share, share_rule),
        field("limit_predict_batches", &O::limit_predict_batches, "batches of a prediction, per loader")
            .check(share, share_rule),
        field("overfit_batches", &O::overfit_batches, "train and validate on this many batches, in order, every epoch")
            .check(share, share_rule),
        field("fast_dev_run", &O::fast_dev_run, "run one batch (or n) of each loop and write nothing"),
        field("val_check_interval", &O::val_check_interval,
              "validate every n training batches, or after this share of an epoch; or after a period: 500ba "
              "(batches), 2ep (epochs), 30min, 0.1dur (share of the run)")
            .check(share, share_rule),
        field("check_val_every_n_epoch", &O::check_val_every_n_epoch,
              "validate in every n-th epoch; null: val_check_interval counts across epochs")
            .check(at_least(1), ">= 1"),
        field("num_sanity_val_steps", &O::num_sanity_val_steps,
              "validation batches tried before training; -1: all; default 2")
            .check(at_least(-1), ">= -1"),
        field("log_every_n_steps", &O::log_every_n_steps,
              "write training metrics every n-th step; 0: never; default 50")
            .check(at_least(0), ">= 0"),
        field("logger", &O::logger, "true: metrics.csv; false: none; or loggers"),
        field("log", &O::log,
              "run.log, what the parts of the run do: level (data=debug,info), format, size of its files"),
        field("callbacks", &O::callbacks, "objects whose hooks are called during the run"),
        field("enable_checkpointing", &O::enable_checkpointing,
              "save a checkpoint after each epoch if no ModelCheckpoint is given; default true"),
        field("enable_progress_bar", &O::enable_progress_bar, "show progress; default true"),
        field("enable_model_summary", &O::enable_model_summary, "print the layers before training; default true"),
        field("default_root_dir", &O::default_root_dir,
              "where logs and checkpoints go: a folder, or s3://bucket/folder; empty: the working directory"),
        field("auto_resume", &O::auto_resume,
              "true: continue the newest run of this folder from its newest good checkpoint, or start if there is "
              "none; refuse "
              "if options have changed that affect its results; warn: report what has changed and continue")
            .check(bool_or("warn"), "true, false or warn"),
        field("auto_requeue", &O::auto_requeue,
              "in a Slurm job: SIGUSR1 saves and requeues the job, and a requeued job continues"),
        field("nonfinite_loss", &O::nonfinite_loss,
              "a loss or a gradient that is nan or inf: stop before the update, skip the update, roll back to the last "
              "checkpoint, or ignore"),
        field("deterministic", &O::deterministic, "true: only deterministic algorithms; warn: warn where there is none")
            .check(bool_or("warn"), "true, false or warn"),
        field("benchmark", &O::benchmark,
              "let cuDNN time its algorithms for each new shape (faster if shapes stay the same); unset: do not change "
              "the setting"),
        field(
            "float32_matmul_precision", &O::float32_matmul_precision,
            "highest, high (TensorFloat-32) or medium (bfloat16) for float32 matrix products; unset: do not change it"),
        field("channels_last", &O::channels_last,
              "store images and weights of convolutions with the channels last, as tensor cores prefer"),
        field("record_steps", &O::record_steps,
              "record a training step once and replay it (operators on a CPU, a CUDA graph on a GPU): for small steps; "
              "auto: where that is faster")
            .check(bool_or("auto"), "true, false or auto"),
        field("cuda_graph", &O::cuda_graph, "the former name of record_steps: true"),
        field("inference_mode", &O::inference_mode, "validate, test and predict in inference mode (no_grad if false)"),
        field("detect_anomaly", &O::detect_anomaly, "name the forward operation of a failing or NaN backward (slow)"),
        field("profiler", &O::profiler,
              "simple: time of each part of a run; trace: a trace for Perfetto; nvtx: ranges for Nsight"),
        field("barebones", &O::barebones, "no logging, checkpoints, bar, summary or sanity check: for measuring"),
        field("reload_dataloaders_every_n_epochs", &O::reload_dataloaders_every_n_epochs,
              "create the loaders again every n epochs; 0: never")
            .min(0));
  }
};

}  // namespace levin
