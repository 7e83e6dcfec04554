#include "levin/metrics/edit_distance.h"

#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "levin/metrics/text_batch.h"
#include "levin/metrics/text_tokens.h"

namespace levin::metrics {

namespace {

constexpr int64_t kUnreached = int64_t{1} << 60;

// Columns of the reference that row `i` of `rows` tries: near the diagonal, and in the last row up to the end.
struct Columns {
  int64_t begin = 0;
  int64_t end = 0;
};

class Beam {
 public:
  Beam(int64_t rows, int64_t columns, int64_t width) : rows_(rows), columns_(columns) {
    ratio_ = rows > 0 ? static_cast<double>(columns) / static_cast<double>(rows) : 1.0;
    const double half = ratio_ / 2;
    width_ =
        half > static_cast<double>(width) ? static_cast<int64_t>(std::ceil(half + static_cast<double>(width))) : width;
    if (width == 0) width_ = rows + columns + 1;
  }
  [[nodiscard]] Columns of_row(int64_t i) const {
    const auto diagonal = static_cast<int64_t>(std::floor(static_cast<double>(i) * ratio_));
    const int64_t end = i == rows_ ? columns_ + 1 : std::min(columns_ + 1, diagonal + width_);
    return {std::max<int64_t>(0, diagonal - width_), end};
  }

 private:
  int64_t rows_, columns_, width_;
  double ratio_;
};

int64_t edit_distance(const std::u32string& pred, const std::u32string& target, const EditDistanceOptions& options) {
  const auto rows = static_cast<int64_t>(pred.size());
  const auto columns = static_cast<int64_t>(target.size());
  const Beam beam(rows, columns, options.beam_width);
  std::vector<int64_t> above(target.size() + 1), row(target.size() + 1);
  for (int64_t j = 0; j <= columns; ++j) above[static_cast<size_t>(j)] = j;
  for (int64_t i = 1; i <= rows; ++i) {
    std::fill(row.begin(), row.end(), kUnreached);
    const Columns tried = beam.of_row(i);
    const char32_t letter = pred[static_cast<size_t>(i - 1)];
    if (tried.begin == 0) row[0] = above[0] + 1;
    for (auto j = static_cast<size_t>(std::max<int64_t>(1, tried.begin)); j < static_cast<size_t>(tried.end); ++j) {
      const int64_t replaced = above[j - 1] + (letter == target[j - 1] ? 0 : options.substitution_cost);
      row[j] = std::min(replaced, std::min(above[j], row[j - 1]) + 1);
    }
    std::swap(above, row);
  }
  return above.back();
}

}  // namespace

EditDistance::EditDistance(EditDistanceOptions options) : options_(checked(options, "EditDistanceOptions")) {
  if (options_.reduction == Reduction::none) {
    add_state("edit_scores_list", StateReduce::cat);
    return;
  }
  add_state("edit_scores", StateReduce::sum, at::zeros({}, at::kLong));
  add_state("num_elements", StateReduce::sum, at::zeros({}, at::kLong));
}

void EditDistance::update(const Texts& preds, const std::vector<Texts>& references) {
  check_references(name(), preds.size(), references, /*only_one=*/true);
  begin_update(at::kCPU);
  const auto count = static_cast<int64_t>(preds.size());
  const at::Tensor distances = at::empty({count}, at::kLong);
  int64_t sum = 0;
  for (size_t i = 0; i < preds.size(); ++i) {
    const int64_t distance = edit_distance(code_points(preds[i]), code_points(references[i][0]), options_);
    distances.mutable_data_ptr<int64_t>()[i] = distance;
    sum += distance;
  }
  if (options_.reduction == Reduction::none) {
    append(0, distances);
  } else {
    *state(0).mutable_data_ptr<int64_t>() += sum;
    *state(1).mutable_data_ptr<int64_t>() += count;
  }
}

at::Tensor EditDistance::compute() const {
  if (options_.reduction == Reduction::none) return rows(0);
  return options_.reduction == Reduction::sum ? state(0).clone() : at::div(state(0).to(at::kDouble), state(1));
}

}  // namespace levin::metrics
