#include "levin/recompute/chain_cost.h"

#include <algorithm>

namespace levin {

namespace {

// Simulates one step, block after block. The tensors between two blocks are reference-counted: by the running
// computation, the graph of the block that produced them, the graph of the block that takes them, and a segment that
// begins with them.
class Simulation {
 public:
  Simulation(const ChainCost& cost, const Segments& segments) : cost_(cost) {
    const size_t count = cost.blocks.size();
    holders_.assign(count, 0);
    for (size_t k = 0, next = 0; k < count;) {
      const bool begins = next < segments.size() && segments[next].first == k;
      parts_.push_back({begins ? segments[next] : BlockSegment{k, k}, begins});
      k = begins ? segments[next++].last + 1 : k + 1;
    }
  }

  MemoryPrediction run() {
    const int64_t fixed = cost_.fixed();
    held_ = fixed + cost_.gradients;  // gradients of the previous step, which are freed after forward
    note(0, 0, "forward");
    for (const auto& [segment, again] : parts_) again ? forward_bare(segment) : forward(segment.first, "forward");
    if (!cost_.blocks.empty()) {
      release(cost_.blocks.size() - 1);
      held_ += cost_.blocks.back().output_gradient;
    }
    if (!cost_.gradients_stay) held_ -= cost_.gradients;
    for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) {
      part->again ? backward_again(part->segment) : backward(part->segment.first);
    }
    held_ = fixed + cost_.gradients;
    note(cost_.optimizer_s, cost_.optimizer_peak, "the optimizer's step");
    result_.seconds = now_;
    return std::move(result_);
  }

 private:
  struct Part {
    BlockSegment segment;
    bool again;
  };

  // `seconds` pass, with `above` more bytes in the middle.
  void note(double seconds, int64_t above, const std::string& at) {
    result_.curve.push_back({now_, held_});
    result_.curve.push_back({now_ + seconds / 2, held_ + above});
    now_ += seconds;
    if (held_ + above <= result_.peak) return;
    result_.peak = held_ + above;
    result_.at = at;
  }

  void hold(size_t border) {
    if (holders_[border]++ == 0) held_ += cost_.blocks[border].output;
  }
  void release(size_t border) {
    if (--holders_[border] == 0) held_ -= cost_.blocks[border].output;
  }

  // The running computation holds the input until the output exists.
  void forward(size_t k, const char* what) {
    const BlockCost& block = cost_.blocks[k];
    note(block.forward_s, block.forward_peak, what + (" of " + block.name));
    keep(k);
  }
  void keep(size_t k) {
    const BlockCost& block = cost_.blocks[k];
    held_ += block.kept;
    hold(k);
    if (block.keeps_output) hold(k);
    if (k == 0) return;
    if (block.keeps_input) hold(k - 1);
    release(k - 1);
  }

  void forward_bare(const BlockSegment& segment) {
    if (segment.first > 0) hold(segment.first - 1);
    held_ += cost_.segment_bytes;
    for (size_t k = segment.first; k <= segment.last; ++k) {
      const BlockCost& block = cost_.blocks[k];
      note(block.segment_forward_s, block.segment_forward_peak, "forward of " + block.name);
      hold(k);
      if (k > 0) release(k - 1);
    }
  }

  void backward(size_t k) {
    const BlockCost& block = cost_.blocks[k];
    note(block.backward_s, block.backward_peak, "backward of " + block.name);
    end_backward(k);
  }
  void end_backward(size_t k) {
    const BlockCost& block = cost_.blocks[k];
    held_ += (cost_.backward_adds_gradients() ? block.gradients : 0) - block.kept - block.output_gradient;
    if (block.keeps_output) release(k);
    if (k == 0) return;
    held_ += cost_.blocks[k - 1].output_gradient;
    if (block.keeps_input) release(k - 1);
  }

  // The last block is not recomputed to its end, and its backward follows immediately.
  void backward_again(const BlockSegment& segment) {
    if (segment.first > 0) hold(segment.first - 1);  // who computes
    for (size_t k = segment.first; k < segment.last; ++k) forward(k, "computing again");
    const BlockCost& last = cost_.blocks[segment.last];
    note(last.again_s, last.again_peak, "computing again of " + last.name);
    keep(segment.last);
    release(segment.last);
    note(last.backward_s, 0, "backward of " + last.name);
    end_backward(segment.last);
    for (size_t k = segment.last; k-- > segment.first;) backward(k);
    held_ -= cost_.segment_bytes;
    if (segment.first > 0) release(segment.first - 1);
  }

  const ChainCost& cost_;
  std::vector<Part> parts_ = {};
  std::vector<int64_t> holders_ = {};
  int64_t held_ = 0;
  double now_ = 0;
  MemoryPrediction result_ = {};
};

}  // namespace

MemoryPrediction predict_memory(const ChainCost& cost, const Segments& segments) {
  return Simulation(cost, segments).run();
}

ChainCost at_batch(const ChainCost& one, const ChainCost& other, int64_t batch) {
  ChainCost cost = one;
  const double share = static_cast<double>(batch - one.batch) / static_cast<double>(one.batch - other.batch);
  auto line = [&](auto here, auto there) {
    const double value = static_cast<double>(here) + share * static_cast<double>(here - there);
    return static_cast<decltype(here)>(std::max(0.0, value));
  };
  cost.batch = batch;
  cost.inputs = line(one.inputs, other.inputs);
  for (size_t k = 0; k < cost.blocks.size(); ++k) {
    const BlockCost& a = one.blocks[k];
    const BlockCost& b = other.blocks[k];
    BlockCost& block = cost.blocks[k];
    block.kept = line(a.kept, b.kept);
    block.output = line(a.output, b.output);
    block.output_gradient = line(a.output_gradient, b.output_gradient);
    block.forward_peak = line(a.forward_peak, b.forward_peak);
    block.segment_forward_peak = line(a.segment_forward_peak, b.segment_forward_peak);
    block.again_peak = line(a.again_peak, b.again_peak);
    block.backward_peak = line(a.backward_peak, b.backward_peak);
    block.forward_s = line(a.forward_s, b.forward_s);
    block.segment_forward_s = line(a.segment_forward_s, b.segment_forward_s);
    block.again_s = line(a.again_s, b.again_s);
    block.backward_s = line(a.backward_s, b.backward_s);
  }
  return cost;
}

}  // namespace levin
