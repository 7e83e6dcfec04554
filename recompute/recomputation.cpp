#include "levin/recompute/recomputation.h"

#include <torch/nn/module.h>

#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/process/console.h"

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

constexpr const char* kHowToCall =
    "A segment is a block of a torch::nn::Sequential, or a submodule that the step calls through levin::call(module, "
    "x), or blocks that it calls through levin::call_chain(blocks, x), a range together, or a submodule of an exported "
    "program that Python calls.";

}  // namespace

RecomputedCall::RecomputedCall(SegmentOptions options, TensorList buffers)
    : options_(std::move(options)), buffers_(std::move(buffers)) {}

TensorList RecomputedCall::around(const ModuleForward& forward, const TensorList& inputs, ChainPosition) {
  if (!recomputation_applies()) return forward(inputs, nullptr);
  if (!is_recomputing()) ++counts_->calls;
  detail::SegmentScope scope(options_, inputs, buffers_, [forward, counts = counts_](const TensorList& given) {
    ++counts->recomputed;
    (void)forward(given, nullptr);
  });
  TensorList outputs = forward(inputs, nullptr);
  scope.finish();
  return outputs;
}

std::shared_ptr<RecomputedCall> RecomputedCall::for_copy(TensorList buffers) const {
  auto copy = std::make_shared<RecomputedCall>(options_, std::move(buffers));
  copy->counts_ = counts_;
  return copy;
}

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

}  // namespace levin
