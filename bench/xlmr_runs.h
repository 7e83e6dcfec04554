// Training XLM-R (examples/models/text_classifier.h) on verses of the King James Bible: the columns of an article's
// table of what mixed precision and recomputation save (docs/articles/xlmr.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/bible.h"
#include "models/text_classifier.h"

namespace bench::xlmr {

struct Column {
  std::string name;
  Architecture architecture;
  int64_t batch;
  bool mixed;
  bool recompute;  // each layer is a segment
};

/// The article's six columns.
[[nodiscard]] const std::vector<Column>& columns();
/// Throws std::runtime_error listing all names if no column has this name.
[[nodiscard]] const Column& column_called(const std::string& name);

/// The size at which a column is run.
struct Size {
  int64_t layers = 0;      // 0: all
  int64_t tokens = 256;    // of a verse
  int64_t vocabulary = 0;  // 0: all 250002
  bool gpu = false;
  bool fused = true;  // false: attention as the article's library had it, by matrix products and a softmax
};

struct Cost {
  double ms_a_step = 0;
  double ms_without = 0;  // predicted: without recomputation, by the same measurement
  double peak_mib = 0;    // of all tensors: weights, gradients, optimizer state, activations and what operators need
};

[[nodiscard]] TextClassifierOptions model_options(const Column& column, const Size& size);
[[nodiscard]] levin::TrainerOptions trainer_options(const Column& column, const Size& size);
[[nodiscard]] levin::TextCsvOptions data_options(const Column& column, const Size& size);

/// `steps` steps by the Trainer, after two that are not measured. One call a process: on a CPU the memory is counted
/// from the first tensor on.
[[nodiscard]] Cost train(const Column& column, const Size& size, int64_t steps);

}  // namespace bench::xlmr
