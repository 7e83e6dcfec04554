#include "levin/trainer/recomputation.h"

#include <torch/nn/module.h>

#include <utility>

#include "levin/core/console.h"
#include "levin/core/error.h"
#include "levin/trainer/module_replicas.h"
#include "levin/trainer/run.h"

namespace levin {

namespace {

TensorList buffers_of(const NamedSegment& segment) {
  TensorList buffers;
  for (const torch::nn::Module* module : segment.modules) {
    for (const at::Tensor& buffer : module->buffers()) {
      if (buffer.defined()) buffers.push_back(buffer);
    }
  }
  return buffers;
}

void act(const NamedSegment& segment, const std::shared_ptr<CallAction>& action) {
  if (segment.modules.size() == 1) return CallActions::add(segment.modules[0], action);
  CallActions::add_range({segment.modules.begin(), segment.modules.end()}, action);
}

// A stage of a pipeline computes its parts on a thread of its own, with random numbers of its own.
void check_pipeline(const Run& run, const RecomputeOptions& options) {
  if (run.strategy->micro_batches() < 2) return;
  for (const NamedSegment& segment : named_segments(*run.module, options)) {
    for (torch::nn::Module* module : segment.modules) {
      bool placed = segment.modules.size() > 1 && CallActions::of(module) != nullptr;
      for (const auto& inner : module->modules(/*include_self=*/false)) {
        placed = placed || CallActions::of(inner.get()) != nullptr;
      }
      if (!placed) continue;
      throw ConfigError("TrainerOptions.recompute: " + segment.name +
                        " holds parts that a pipeline places on devices, and these run beside it. Name the parts "
                        "themselves, or submodules of them.");
    }
  }
}

constexpr const char* kHowToCall =
    "A segment is a block of a torch::nn::Sequential, or a submodule that the step calls through levin::call(module, "
    "x), "
    "or blocks that it calls through levin::call_chain(blocks, x), a range together.";

}  // namespace

Recomputation::Recomputation(torch::nn::Module& root, const RecomputeOptions& options) : options_(options) {
  for (NamedSegment& segment : named_segments(root, options)) {
    auto action = std::make_shared<RecomputedCall>(
        SegmentOptions{.name = segment.name, .keep = options.keep, .offload = options.offload}, buffers_of(segment));
    attached_.push_back({std::move(segment), std::move(action)});
  }
  for (const Attached& one : attached_) act(one.segment, one.action);
}

Recomputation::~Recomputation() {
  for (const auto* list : {&attached_, &replicas_}) {
    for (const Attached& one : *list) {
      for (const torch::nn::Module* module : one.segment.modules) CallActions::remove(module, one.action.get());
      CallActions::remove_range(one.action.get());
    }
  }
}

void Recomputation::add_replica(torch::nn::Module& copy) {
  std::vector<NamedSegment> segments = named_segments(copy, options_);
  for (size_t k = 0; k < segments.size(); ++k) {
    auto action = attached_.at(k).action->for_copy(buffers_of(segments[k]));
    act(segments[k], action);
    replicas_.push_back({std::move(segments[k]), std::move(action)});
  }
}

void Recomputation::check_called() {
  if (std::exchange(checked_, true)) return;
  std::vector<std::string> idle;
  for (const Attached& one : attached_) {
    if (one.action->calls() == 0) idle.push_back(one.segment.name);
  }
  if (idle.empty()) return;
  const std::string names = join(idle);
  if (idle.size() == attached_.size()) {
    throw ConfigError(
        "TrainerOptions.recompute: the first training step has called no segment where it could be seen: " + names +
        ". " + kHowToCall);
  }
  Console::instance().warn("TrainerOptions.recompute: the first training step has not called " + names +
                           " where it could be seen, and what they keep for backward stays in memory. " + kHowToCall);
}

int64_t Recomputation::calls() const {
  int64_t sum = 0;
  for (const Attached& one : attached_) sum += one.action->calls();
  return sum;
}

int64_t Recomputation::recomputed() const {
  int64_t sum = 0;
  for (const Attached& one : attached_) sum += one.action->recomputed();
  return sum;
}

void start_recomputation(Run& run) {
  const auto& options = run.options.recompute.options;
  if (!options || (options->modules.empty() && options->checkpoints.empty())) return;
  if (run.plan.cuda_graph) {
    throw ConfigError(
        "TrainerOptions.recompute: a recorded step (cuda_graph: true) cannot go back to the random numbers of its "
        "forward pass. Set one of the two.");
  }
  check_pipeline(run, *options);
  run.recomputation = std::make_shared<Recomputation>(*run.module, *options);
  if (!run.replicas) return;
  for (const auto& copy : run.replicas->copies()) run.recomputation->add_replica(*copy);
}

}  // namespace levin
