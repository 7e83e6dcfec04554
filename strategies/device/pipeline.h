// Pipeline parallelism within one step: while a part computes one micro-batch, the part before it, on another device,
// computes the next. The schedule is 1F1B: a stage begins a micro-batch's backward pass as soon as it can, so that it
// holds the activations of no more micro-batches than there are stages after it (Narayanan et al., PipeDream, SOSP
// 2019; with the weights of the same step, as in Megatron-LM, SC 2021, figure 4). Internal to ModelParallel.
//
// Note [How a step without pipeline code is cut]
// Each micro-batch runs the user's training_step on its own thread. Where that calls a part, the part's stage computes
// it on the stage's thread, in the order of the schedule, while the micro-batch's thread waits. The graph is cut there:
// the part gets detached inputs, and the step continues with detached outputs. Backward then runs piece by piece in
// reverse, the step's own pieces on the micro-batch's thread, the parts' on their stages' threads.
// Threads of micro-batches run the user's code one at a time, so that members of the module need no lock.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "levin/core/module_call.h"
#include "levin/strategies/device_placement.h"

namespace levin {

class PlacementRecorder;
class WorkerThread;

/// The order of a stage's forward ("F") and backward ("B") passes: 1F1B for `micro_batches` on stage `stage` of
/// `stages`.
struct PipelineTask {
  bool forward = true;
  size_t micro_batch = 0;
};
[[nodiscard]] std::vector<PipelineTask> one_forward_one_backward(size_t stage, size_t stages, size_t micro_batches);

class Pipeline {
 public:
  /// A part with its slots, in the order in which a step calls them. Consecutive parts on the same slots form one
  /// stage.
  struct Part {
    std::string name;
    std::vector<DeviceSlot> slots;
  };
  Pipeline(std::vector<Part> parts, DeviceSlot home, PlacementRecorder& recorder);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// Accumulates the gradients of loss(0), …, loss(count - 1), each of which calls every part once, in order, on the
  /// calling thread. Rethrows the exceptions of micro-batches and parts; throws Error if parts are called differently.
  void run(size_t count, const std::function<at::Tensor(size_t)>& loss);

  /// Whether the calling thread runs a micro-batch of this pipeline.
  [[nodiscard]] bool is_running_here() const;

  /// Runs compute(inputs) on the part's stage. Called by a micro-batch.
  [[nodiscard]] TensorList call_part(size_t part, const std::function<TensorList(const TensorList&)>& compute,
                                     const TensorList& inputs);

 private:
  struct MicroBatch;
  struct Step;
  struct Stage {
    std::vector<size_t> parts;
    std::string name;
    DeviceSlot slot;
  };

  void run_stage(Step& step, size_t stage);
  void run_micro_batch(Step& step, size_t index, const std::function<at::Tensor(size_t)>& loss);
  void backward(Step& step, MicroBatch& own, const at::Tensor& loss);
  void check_all_called(const MicroBatch& own) const;
  [[nodiscard]] std::string part_names() const;

  std::vector<Part> parts_;
  std::vector<Stage> stages_;
  std::vector<size_t> stage_of_;  // by part
  size_t stages_on_cpu_ = 0;      // they share its cores
  DeviceSlot home_;
  PlacementRecorder& recorder_;
  std::vector<std::unique_ptr<WorkerThread>> threads_;  // of the stages, then of micro-batches; reused by later steps
};

}  // namespace levin
