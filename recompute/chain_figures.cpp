#include "levin/recompute/chain_figures.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <typeindex>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/tensors.h"

namespace levin {

namespace {

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

int64_t parameter_bytes(const torch::nn::Module& module) {
  int64_t bytes = 0;
  for (const at::Tensor& parameter : distinct(module.parameters())) bytes += static_cast<int64_t>(parameter.nbytes());
  return bytes;
}

// For each station the first similar one: of the same class, with as many weights, and with outputs and gradients of
// the same size, such as the layers of a transformer.
std::vector<size_t> first_alike(const Stations& stations) {
  using Likeness = std::tuple<std::type_index, int64_t, int64_t, int64_t, bool>;
  std::map<Likeness, size_t> first;
  std::vector<size_t> alike;
  for (size_t k = 0; k < stations.size(); ++k) {
    const Station& station = stations[k];
    alike.push_back(k);
    if (station.module == nullptr) continue;
    const bool sends_back = k > 0 && stations[k - 1].has_backward;
    alike.back() = first
                       .try_emplace({typeid(*station.module), parameter_bytes(*station.module), station.output,
                                     station.output_gradient, sends_back},
                                    k)
                       .first->second;
  }
  return alike;
}

// By station, then by pass: means of the stations that are alike.
struct PassTimes {
  std::vector<std::vector<double>> forward = {};
  std::vector<std::vector<double>> backward = {};
};

PassTimes take_times(const std::vector<Stations>& passes, Stations& into) {
  const std::vector<size_t> alike = first_alike(into);
  std::vector<std::vector<double>> forward(into.size()), backward(into.size());  // by the first alike, then by pass
  for (const Stations& pass : passes) {
    if (pass.size() != into.size()) refuse_plan("the module calls other blocks in one step than in the next.");
    std::vector<double> count(into.size()), forward_sum(into.size()), backward_sum(into.size());
    for (size_t k = 0; k < pass.size(); ++k) {
      count[alike[k]] += 1;
      forward_sum[alike[k]] += pass[k].forward.seconds;
      backward_sum[alike[k]] += pass[k].backward.seconds;
    }
    for (size_t k = 0; k < pass.size(); ++k) {
      if (alike[k] != k) continue;
      forward[k].push_back(forward_sum[k] / count[k]);
      backward[k].push_back(backward_sum[k] / count[k]);
    }
  }
  for (size_t k = 0; k < into.size(); ++k) {
    into[k].forward.seconds = median(forward[alike[k]]);
    into[k].backward.seconds = median(backward[alike[k]]);
  }
  for (size_t k = 0; k < into.size(); ++k) {
    if (alike[k] == k) continue;
    forward[k] = forward[alike[k]];
    backward[k] = backward[alike[k]];
  }
  return {std::move(forward), std::move(backward)};
}

// The time of a stretch with segments: the time without them, times the median ratio of each pass to the pass just
// before it. A machine that slows down for a few passes slows both of a pair; the medians of each kind, taken alone,
// may come from different times, and their difference, what recomputation takes, would be several times too large.
double beside(double without, const std::vector<double>& plain, const std::vector<double>& again) {
  std::vector<double> ratios;
  for (size_t pass = 0; pass < std::min(plain.size(), again.size()); ++pass) {
    if (plain[pass] > 0) ratios.push_back(again[pass] / plain[pass]);
  }
  return ratios.empty() ? median(again) : without * median(ratios);
}

void pair_times(const PassTimes& plain, const PassTimes& again, Passes& passes) {
  for (size_t k = 0; k < passes.again.size(); ++k) {
    if (plain.forward[k].empty() || again.forward[k].empty()) continue;
    passes.again[k].forward.seconds = beside(passes.plain[k].forward.seconds, plain.forward[k], again.forward[k]);
    passes.again[k].backward.seconds = beside(passes.plain[k].backward.seconds, plain.backward[k], again.backward[k]);
  }
}

// Note [What a station's figures say]
// A station that writes into its input, or returns a view of it, passes memory on: that border's bytes count as its
// output, and its input is not kept besides. What is held at the end of a station and was not at its beginning is its
// output, and what its graph keeps; borders that went meanwhile are added back. One that changes its input cannot be a
// segment alone: its recomputation at the end of one is assumed to cost its whole forward pass.
void fill_block(const Stations& whole, const Station& again, size_t k, BlockCost& block) {
  const Station& station = whole[k];
  const bool passes_on = station.output == 0 && station.passed_on > 0;
  const bool before_keeps = k > 0 && whole[k - 1].output_there;
  block.output = passes_on && !before_keeps ? station.passed_on : station.output;
  block.keeps_output = station.output_there && !(passes_on && before_keeps);
  const bool holds = station.module != nullptr && before_keeps ? station.holds_input : true;
  block.keeps_input = !passes_on && station.input_there && holds;
  const Stretch& forward = station.forward;
  const Stretch& backward = station.backward;
  block.kept = std::max<int64_t>(0, forward.after - forward.before - station.output + forward.freed);
  block.forward_peak = std::max(block.kept + station.output, forward.peak - forward.before + forward.late);
  block.forward_s = forward.seconds;
  block.backward_s = backward.seconds;
  block.segment_forward_peak =
      std::max<int64_t>(station.output, again.forward.peak - again.forward.before + again.forward.late);
  block.segment_forward_s = again.forward.seconds;
  block.begins_segments = !station.changes_input;
  // Because of measuring errors a segment could seem to take less time than no segment.
  const double again_s =
      std::max({0.0, again.backward.seconds - backward.seconds, forward.seconds - again.forward.seconds});
  block.again_s = block.begins_segments ? again_s : block.forward_s;
  if (!station.has_backward) return;
  const int64_t sent = k > 0 && whole[k - 1].has_backward ? whole[k - 1].output_gradient : 0;
  block.output_gradient = station.output_gradient;
  block.backward_peak = std::max<int64_t>(0, backward.peak - backward.before);
  const int64_t own = block.kept + (block.keeps_output ? block.output : 0);
  block.again_peak = std::max(own, block.begins_segments ? again.backward.peak - again.backward.before
                                                         : std::max(block.forward_peak, own + block.backward_peak));
  block.gradients = std::max<int64_t>(
      0, backward.after - backward.before + block.kept + block.output_gradient - sent + backward.freed);
}

// What a segment holds besides its input: generators' states.
int64_t kept_by_segments(const Passes& passes) {
  std::vector<int64_t> bytes;
  for (const Station& station : passes.again) {
    const Stretch& forward = station.forward;
    if (station.module == nullptr || station.changes_input) continue;
    bytes.push_back(std::max<int64_t>(0, forward.after - forward.before - station.output + forward.freed));
  }
  if (bytes.empty()) return 0;
  std::nth_element(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(bytes.size() / 2), bytes.end());
  return bytes[bytes.size() / 2];
}

// Names, and which blocks may share a segment.
void name_blocks(const ChainBlocks& blocks, const Stations& stations, ChainCost& cost) {
  std::map<const torch::nn::Module*, int> calls;
  for (const Station& station : stations) ++calls[station.module];
  std::string last = "";
  int64_t chain = kFixedBlock;
  ChainBlocks::Place before;
  for (size_t k = 0; k < stations.size(); ++k) {
    BlockCost& block = cost.blocks[k];
    if (stations[k].module == nullptr) {
      block.name = last.empty() ? "what comes before the blocks" : "what follows " + last;
      continue;
    }
    const ChainBlocks::Place place = blocks.place_of(stations[k].module);
    block.name = last = place.name;
    if (calls[stations[k].module] > 1) continue;  // a block used twice cannot be recomputed in one place only
    const bool joined = stations[k].takes_previous && place.parent != nullptr && place.parent == before.parent &&
                        place.index == before.index + 1 && cost.blocks[k - 1].chain != kFixedBlock;
    block.chain = joined ? chain : ++chain;
    before = place;
  }
}

}  // namespace

void refuse_plan(const std::string& why) {
  throw ConfigError("TrainerOptions.recompute.budget: " + why +
                    " Write the segments yourself: recompute: {modules: [NAMES]}.");
}

Passes typical_passes(const std::vector<Stations>& plain, const std::vector<Stations>& again) {
  Passes passes{plain.back(), again.back()};
  const PassTimes plain_times = take_times(plain, passes.plain);
  const PassTimes again_times = take_times(again, passes.again);
  if (passes.plain.size() != passes.again.size()) {
    refuse_plan("the module calls other blocks where they are recomputed.");
  }
  pair_times(plain_times, again_times, passes);
  return passes;
}

ChainCost chain_cost(const ChainBlocks& blocks, const Passes& passes) {
  ChainCost cost;
  cost.blocks.resize(passes.plain.size());
  for (size_t k = 0; k < cost.blocks.size(); ++k) fill_block(passes.plain, passes.again[k], k, cost.blocks[k]);
  cost.segment_bytes = kept_by_segments(passes);
  name_blocks(blocks, passes.plain, cost);
  return cost;
}

ChainCost without_samples(ChainCost cost) {
  cost.batch = cost.inputs = 0;
  for (BlockCost& block : cost.blocks) {
    BlockCost none;
    none.name = block.name;
    none.chain = block.chain;
    none.keeps_input = block.keeps_input;
    none.keeps_output = block.keeps_output;
    none.gradients = block.gradients;
    block = none;
  }
  return cost;
}

}  // namespace levin
