// Micro-batches of one step on parts that are on different devices, several at a time: while a part computes one, the
// part before computes the next. The order is 1F1B: a stage begins a micro-batch's backward pass as soon as it can, so
// that it holds the activations of no more micro-batches than there are stages behind it (Narayanan et al., PipeDream,
// SOSP 2019; with the weights of the same step, as in Megatron-LM, SC 2021, figure 4). Internal to ModelParallel.
//
// Note [How a step that knows no pipeline is cut]
// Each micro-batch runs the user's training_step on its own thread. Where that calls a part, the part's stage
// computes it, on the stage's thread and when its turn in the schedule comes, and the micro-batch's thread waits. The
// graph is cut there: the part gets detached inputs and the step continues with detached outputs. Backward then goes
// piece by piece in reverse, the step's own pieces on the micro-batch's thread, the parts' on their stages' threads.
// Threads of micro-batches run the user's code one at a time, so that members of the module need no lock.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "levin/core/module_call.h"
#include "levin/strategies/device_slot.h"

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
  /// A part with its place, in the order in which a step calls them. Parts on the same place that follow one another
  /// are one stage.
  struct Part {
    std::string name;
    std::vector<DeviceSlot> slots;
  };
  Pipeline(std::vector<Part> parts, DeviceSlot home, PlacementRecorder& recorder);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// Adds the gradients of loss(0), …, loss(count - 1), each of which calls every part once, in their order, on the
  /// calling thread. Throws what a micro-batch or a part has thrown, Error if parts are called in another way.
  void run(size_t count, const std::function<at::Tensor(size_t)>& loss);

  /// Whether the calling thread runs a micro-batch of it.
  [[nodiscard]] bool is_running_here() const;

  /// compute(inputs), on the part's stage. Called by a micro-batch.
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
  size_t stages_on_cpu_ = 0;      // which share its cores
  DeviceSlot home_;
  PlacementRecorder& recorder_;
  std::vector<std::unique_ptr<WorkerThread>> threads_;  // of the stages, then of micro-batches; they stay
};

}  // namespace levin
