// The resolved options of a run: TrainerOptions with a value for every "auto" and unset option.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "levin/trainer/trainer_options.h"

namespace levin {

inline constexpr int64_t kAutoMicroBatch = -1;

/// Whether training steps are recorded and replayed; automatic: where that is faster.
enum class RecordSteps { no, yes, automatic };

/// The decisions of resolve_plan, made once before anything runs; the loops read nothing else. Trainer::plan() returns
/// it.
struct RunPlan {
  std::string strategy = "single_device";
  std::string precision = "32-true";
  std::string device = "cpu";                // or LibTorch's name of an accelerator: "cuda"
  int64_t devices = 1;                       // on this node: ranks of a distributed strategy
  std::vector<int64_t> device_indices = {};  // not with cpu: the device of every local rank
  int64_t num_nodes = 1;
  int64_t num_threads = 0;             // of operators on the CPU; 0: the fit chooses
  std::vector<DeviceSlot> slots = {};  // of a strategy that runs several devices in this process
  bool use_distributed_sampler = true;
  int64_t max_epochs = 1000;  // kUnlimited: no limit
  int64_t min_epochs = 0;
  int64_t max_steps = kUnlimited;  // optimizer steps
  int64_t min_steps = 0;
  BatchLimit limit_train_batches = 1.0;
  BatchLimit limit_val_batches = 1.0;
  BatchLimit limit_test_batches = 1.0;
  BatchLimit limit_predict_batches = 1.0;
  bool overfit = false;                    // training and validation batches in order, the same every epoch
  CheckInterval val_check_interval = 1.0;  // if a period, one of time or of the run
  std::optional<int64_t> check_val_every_n_epoch = 1;
  int64_t num_sanity_val_steps = 2;  // per loader; kUnlimited: all
  int64_t log_every_n_steps = 50;
  int64_t accumulate_grad_batches = 1;
  int64_t effective_batch_size =
      0;                         // samples of one optimizer step on all devices; 0: given by accumulate_grad_batches
  int64_t micro_batch_size = 0;  // samples of one pass; 0: whole batches; kAutoMicroBatch: what fits
  LrScale lr_scale = LrScale::none;
  double gradient_clip_val = 0;  // 0: no clipping
  ClipAlgorithm gradient_clip_algorithm = ClipAlgorithm::norm;
  bool inference_mode = true;
  bool detect_anomaly = false;
  int64_t reload_dataloaders_every_n_epochs = 0;
  bool checkpointing = true;
  bool progress_bar = true;
  bool model_summary = true;
  bool logging = true;  // whether log() keeps anything
  bool fast_dev_run = false;
  std::string root_dir = ".";
  bool auto_resume = false;
  NonFiniteLoss nonfinite_loss = NonFiniteLoss::stop;
  std::optional<bool> benchmark = std::nullopt;
  std::optional<MatmulPrecision> float32_matmul_precision = std::nullopt;
  bool channels_last = false;
  RecordSteps record_steps = RecordSteps::no;

  /// Returns whether the metrics of a step, counted from 0, go to the loggers: every n-th step's, n =
  /// log_every_n_steps.
  [[nodiscard]] bool is_logged_step(int64_t step) const {
    return log_every_n_steps > 0 && (step + 1) % log_every_n_steps == 0;
  }
};

}  // namespace levin
