// The cost of a model's blocks, and the memory of a training step when some of them are recomputed: the planner's
// model. Independent of LibTorch; trainer/loops/measure_chain.h measures the numbers.
//
// A forward pass is a sequence of blocks, each of which takes the output of the one before. The parts between blocks
// (embedding, head, loss) are blocks too, which cannot be recomputed. Blocks of a segment keep nothing in forward, and
// are computed again in backward (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", arXiv:1604.06174).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace levin {

inline constexpr int64_t kFixedBlock = -1;

/// One block, for one batch; bytes and seconds.
struct BlockCost {
  std::string name = "";
  int64_t chain = kFixedBlock;  // blocks of one chain may share a segment; kFixedBlock: never recomputed
  bool begins_segments = true;  // false: it changes its input in place, which a segment needs again
  int64_t kept = 0;             // kept for backward, without input and output
  int64_t output = 0;           // output, the border between two blocks
  bool keeps_input = false;     // backward needs it
  bool keeps_output = false;
  int64_t output_gradient = 0;  // 0: no gradient comes from the following blocks
  int64_t gradients = 0;        // of its parameters

  // Peak memory above the memory at the beginning, and time, of forward and backward.
  int64_t forward_peak = 0;
  int64_t backward_peak = 0;
  double forward_s = 0;
  double backward_s = 0;
  // In a segment: the forward pass, which keeps nothing; and, for the last block of a segment, its recomputation as far
  // as backward needs it. The peak is over the recomputation and its backward, which begins with what the block
  // keeps, including its output.
  int64_t segment_forward_peak = 0;
  int64_t again_peak = 0;
  double segment_forward_s = 0;
  double again_s = 0;
};

/// An entire step.
struct ChainCost {
  int64_t batch = 1;  // samples that these numbers are for
  std::vector<BlockCost> blocks = {};
  int64_t parameters = 0;  // and buffers
  int64_t gradients = 0;   // of all parameters
  int64_t optimizer_state = 0;
  int64_t inputs = 0;           // the batch
  int64_t callbacks = 0;        // tensors of callbacks, such as averages of the weights
  int64_t workspaces = 0;       // what libraries allocate in the first pass and keep, such as cuBLAS's on a GPU
  bool gradients_stay = false;  // from step to step, instead of being allocated in each backward
  bool gradients_apart =
      false;  // each backward's own are held in addition to the gradients that stay until all are summed (dp)
  int64_t optimizer_peak = 0;  // peak above the memory at the beginning of the update
  double optimizer_s = 0;
  int64_t segment_bytes = 0;  // for each segment besides its input: states of generators

  /// What a step holds from its beginning to its end, besides gradients.
  [[nodiscard]] int64_t fixed() const { return parameters + optimizer_state + inputs + callbacks + workspaces; }
  [[nodiscard]] bool backward_adds_gradients() const { return !gradients_stay || gradients_apart; }
};

/// Blocks first … last of one chain, computed again together.
struct BlockSegment {
  size_t first = 0;
  size_t last = 0;
  friend bool operator==(const BlockSegment&, const BlockSegment&) = default;
};
using Segments = std::vector<BlockSegment>;  // in order, without overlap

struct CurvePoint {
  double seconds = 0;
  int64_t bytes = 0;
};

/// Memory and time of a step with given segments.
struct MemoryPrediction {
  int64_t peak = 0;
  std::string at = "";                 // "backward of h.3"
  double seconds = 0;                  // of forward, backward and update
  std::vector<CurvePoint> curve = {};  // memory over the step
};
[[nodiscard]] MemoryPrediction predict_memory(const ChainCost& cost, const Segments& segments);

/// The cost for another batch size, from two measured ones: bytes and seconds grow linearly with it. Requires
/// different sizes of `one` and `other`, and the same blocks.
[[nodiscard]] ChainCost at_batch(const ChainCost& one, const ChainCost& other, int64_t batch);

}  // namespace levin
