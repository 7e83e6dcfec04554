#include "levin/recompute/chain_plan.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "levin/core/options/error.h"
#include "levin/core/options/units.h"
#include "levin/core/tensors.h"

namespace levin {

namespace {

constexpr size_t kMaxChoices = 512;
constexpr double kSegmentSeconds = 1e-6;  // so that a block that seems to cost nothing is not recomputed without need
constexpr int64_t kMaxSamples = int64_t{1} << 24;

// A kept block or a segment: what it adds to the memory kept for backward.
struct Part {
  int64_t kept = 0;      // for backward
  int64_t forward = 0;   // the most while it is computed
  int64_t backward = 0;  // the most in its backward
  double seconds = 0;    // of computing again
};

// The figures of Simulation (chain_cost.cpp) part by part. `held`: the block before keeps its output, the border that
// the part begins with, so that it need not be counted again.
class PartCosts {
 public:
  explicit PartCosts(const ChainCost& cost) : cost_(cost), later_(cost.blocks.size() + 1, 0) {
    for (size_t k = cost.blocks.size(); cost.backward_adds_gradients() && k-- > 0;) {
      later_[k] = later_[k + 1] + cost.blocks[k].gradients;
    }
  }

  [[nodiscard]] int64_t input(size_t k) const { return k == 0 ? 0 : cost_.blocks[k - 1].output; }

  [[nodiscard]] Part block(size_t k, bool held) const {
    const BlockCost& block = cost_.blocks[k];
    Part part;
    part.forward = (held ? 0 : input(k)) + block.forward_peak;
    part.kept = block.kept + (block.keeps_input && !held ? input(k) : 0) + (block.keeps_output ? block.output : 0);
    part.backward = part.kept + block.output_gradient + block.backward_peak + later_[k + 1];
    return part;
  }

  // The segments [first, first], [first, first + 1], and so on to the end of the chain, without their input.
  [[nodiscard]] std::vector<Part> segments(size_t first) const {
    std::vector<Part> all;
    Part part{.kept = cost_.segment_bytes, .seconds = kSegmentSeconds};
    int64_t own = 0;      // kept for backward by the blocks that were computed again
    int64_t again = 0;    // the most while they are
    int64_t earlier = 0;  // the most in backward of the blocks before the last one
    bool held = true;
    for (size_t k = first; k < cost_.blocks.size() && cost_.blocks[k].chain == cost_.blocks[first].chain; ++k) {
      const BlockCost& block = cost_.blocks[k];
      const int64_t border = k == first ? 0 : input(k);
      const int64_t begun = own + (held ? 0 : border);
      const int64_t around = block.output_gradient + later_[k + 1];
      part.forward = std::max(part.forward, part.kept + border + block.segment_forward_peak);
      part.backward = part.kept + std::max({again + around, earlier, begun + block.again_peak + around});
      part.seconds += block.segment_forward_s - block.forward_s - (k == first ? 0 : cost_.blocks[k - 1].again_s) +
                      block.again_s + (k == first ? 0 : cost_.blocks[k - 1].forward_s);
      again = std::max(again, begun + block.forward_peak);
      own += this->block(k, held).kept;
      held = block.keeps_output;
      earlier = std::max(earlier, own + block.backward_peak + around);
      all.push_back(part);
    }
    return all;
  }

 private:
  const ChainCost& cost_;
  std::vector<int64_t> later_;  // gradients that exist when backward reaches block k - 1
};

// A choice for the blocks before one.
struct Choice {
  int64_t kept = 0;
  double seconds = 0;
  size_t first = 0;  // of its last part
  bool again = false;
  bool held = false;  // which list, and where in it, the choice for the blocks before `first` is
  size_t before = 0;
};
using Choices = std::vector<Choice>;

// Keeps the Pareto-optimal ones, by increasing bytes; of more than `most`, a regular selection.
void thin_out(Choices& choices, size_t most) {
  std::sort(choices.begin(), choices.end(), [](const Choice& a, const Choice& b) {
    return a.kept != b.kept ? a.kept < b.kept : a.seconds < b.seconds;
  });
  Choices best;
  for (const Choice& choice : choices) {
    if (best.empty() || choice.seconds < best.back().seconds) best.push_back(choice);
  }
  if (best.size() > most) {
    Choices some = {best.front()};  // so that every feasible budget stays feasible
    for (size_t k = 1; k < most; ++k) some.push_back(best[k * (best.size() - 1) / (most - 1)]);
    best = std::move(some);
  }
  choices = std::move(best);
}

class Search {
 public:
  Search(const ChainCost& cost, int64_t budget, size_t most)
      : cost_(cost), parts_(cost), most_(most), choices_(cost.blocks.size() + 1) {
    const int64_t fixed = cost.fixed();
    forward_room_ = budget - fixed - cost.gradients;
    backward_room_ = budget - fixed - (cost.gradients_stay ? cost.gradients : 0);
    if (forward_room_ < cost.optimizer_peak) return;
    choices_[0][0].push_back({});
    for (size_t k = 0; k < cost.blocks.size(); ++k) extend(k);
    for (auto& list : choices_.back()) thin_out(list, most_);
  }

  [[nodiscard]] bool found() const { return !choices_.back()[0].empty() || !choices_.back()[1].empty(); }

  [[nodiscard]] std::optional<Segments> fastest() const {
    const Choice* choice = nullptr;
    for (const auto& list : choices_.back()) {
      for (const Choice& one : list) {
        if (choice == nullptr || one.seconds < choice->seconds) choice = &one;
      }
    }
    if (choice == nullptr) return std::nullopt;
    Segments segments;
    for (size_t end = cost_.blocks.size(); end > 0;) {
      if (choice->again) segments.push_back({choice->first, end - 1});
      end = choice->first;
      choice = &choices_[end][choice->held ? 1 : 0][choice->before];
    }
    std::reverse(segments.begin(), segments.end());
    return segments;
  }

 private:
  void extend(size_t k) {
    const BlockCost& block = cost_.blocks[k];
    const bool begins = block.chain != kFixedBlock && block.begins_segments;
    const std::vector<Part> segments = begins ? parts_.segments(k) : std::vector<Part>();
    for (const bool held : {false, true}) {
      Choices& list = choices_[k][held ? 1 : 0];
      thin_out(list, most_);
      const Part kept = parts_.block(k, held);
      const int64_t input = held ? 0 : parts_.input(k);
      for (size_t n = 0; n < list.size(); ++n) {
        Choice next{.first = k, .held = held, .before = n};
        add(list[n], kept, 0, next, k + 1, block.keeps_output);
        next.again = true;
        for (size_t j = 0; j < segments.size(); ++j) add(list[n], segments[j], input, next, k + j + 1, false);
      }
    }
  }

  // `input`: bytes of the border that a segment keeps besides.
  void add(const Choice& before, const Part& part, int64_t input, Choice next, size_t end, bool held) {
    const int64_t base = before.kept + input;
    if (base + part.forward > forward_room_ || base + part.backward > backward_room_) return;
    next.kept = base + part.kept;
    next.seconds = before.seconds + part.seconds;
    choices_[end][held ? 1 : 0].push_back(next);
  }

  const ChainCost& cost_;
  PartCosts parts_;
  size_t most_;
  int64_t forward_room_ = 0, backward_room_ = 0;
  std::vector<std::array<Choices, 2>>
      choices_;  // for the blocks before one; [1]: its input is kept by the last of them
};

std::string text_of(int64_t bytes) {
  return bytes_text(static_cast<uint64_t>(std::max<int64_t>(0, bytes)));
}

}  // namespace

std::optional<Segments> best_segments(const ChainCost& cost, int64_t budget) {
  return Search(cost, budget, kMaxChoices).fastest();
}

int64_t least_peak(const ChainCost& cost) {
  int64_t enough = predict_memory(cost, {}).peak;
  int64_t too_little = -1;
  while (enough - too_little > 1) {
    const int64_t middle = too_little + (enough - too_little) / 2;
    (Search(cost, middle, 1).found() ? enough : too_little) = middle;
  }
  return enough;
}

Segments each_block(const ChainCost& cost) {
  Segments segments;
  for (size_t k = 0; k < cost.blocks.size(); ++k) {
    const BlockCost& block = cost.blocks[k];
    if (block.chain == kFixedBlock) continue;
    if (block.begins_segments) {
      segments.push_back({k, k});
    } else if (!segments.empty() && segments.back().last + 1 == k && cost.blocks[k - 1].chain == block.chain) {
      segments.back().last = k;
    }
  }
  return segments;
}

Segments square_root_segments(const ChainCost& cost) {
  Segments segments;
  for (size_t first = 0, end = 0; first < cost.blocks.size(); first = end) {
    for (end = first + 1; end < cost.blocks.size() && cost.blocks[end].chain == cost.blocks[first].chain;) ++end;
    if (cost.blocks[first].chain == kFixedBlock) continue;
    const size_t count = end - first;
    const auto parts = static_cast<size_t>(std::lround(std::sqrt(static_cast<double>(count))));
    size_t start = first;
    for (size_t part = 1; part < parts; ++part) {
      size_t cut = first + part * (count / parts);
      while (cut < end && !cost.blocks[cut].begins_segments) ++cut;
      if (cut > start && cost.blocks[start].begins_segments) segments.push_back({start, cut - 1});
      start = std::max(start, cut);
    }
  }
  return segments;
}

int64_t largest_batch(const ChainCost& one, const ChainCost& other, const Segments& segments, int64_t budget) {
  auto fits = [&](int64_t batch) { return predict_memory(at_batch(one, other, batch), segments).peak <= budget; };
  int64_t fitting = 0;
  int64_t too_many = 1;
  for (; too_many <= kMaxSamples && fits(too_many); too_many *= 2) fitting = too_many;
  while (too_many - fitting > 1) {
    const int64_t middle = fitting + (too_many - fitting) / 2;
    (fits(middle) ? fitting : too_many) = middle;
  }
  return fitting;
}

std::string cannot_meet(const ChainCost& cost, const ChainCost& other, MemoryBudget budget) {
  const int64_t least = least_peak(cost);
  const auto fewest = best_segments(cost, least);
  const int64_t batch = fewest ? largest_batch(cost, other, *fewest, budget.bytes) : 0;
  const std::string smaller = batch >= 1 && batch < cost.batch
                                  ? "A batch_size of " + std::to_string(batch) + " instead of " +
                                        std::to_string(cost.batch) + " fits (accumulate_grad_batches makes up for it). "
                                  : "";
  const std::string averages =
      cost.callbacks > 0 ? ", what callbacks hold is " + text_of(cost.callbacks) : std::string();
  const size_t blocks = each_block(cost).size();
  const std::string hint = blocks == 0 ? std::string(kNoBlocks) + " " : "";
  return text_of(budget.bytes) + (budget.is_free_memory ? " are free, and that" : "") +
         " cannot be met: the least peak of a step, with segments of its " + count_of(blocks, "block") + ", is " +
         text_of(least) + ", of which parameters, gradients and optimizer state are " +
         text_of(cost.parameters + cost.gradients + cost.optimizer_state) + averages + ". " + hint + smaller +
         "Else give that much, use precision: bf16-mixed, an optimizer with less state, or strategy: fsdp.";
}

std::vector<std::string> module_ranges(const ChainCost& cost, const Segments& segments) {
  std::vector<std::string> names;
  for (const BlockSegment& segment : segments) {
    const std::string& first = cost.blocks[segment.first].name;
    names.push_back(segment.first == segment.last ? first : first + ".." + cost.blocks[segment.last].name);
  }
  return names;
}

}  // namespace levin
