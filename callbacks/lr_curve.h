// The losses of a learning-rate range test (Smith 2017, https://arxiv.org/abs/1506.01186) and what they suggest.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace levin {

class LrCurve {
 public:
  struct Point {
    double lr = 0;
    double loss = 0;  // smoothed
  };

  /// `logarithmic`: whether learning rates grow by a factor, so that slopes and the plot are over their logarithm.
  explicit LrCurve(bool logarithmic) : logarithmic_(logarithmic) {}

  /// Adds the loss of the next step. Losses are smoothed as Lightning's lr_find does it: an exponential moving
  /// average with factor 0.98, corrected for its start at 0.
  void add(double lr, double loss);

  /// Whether the last smoothed loss is more than `threshold` times the best, or not finite. Below 0, where
  /// that would be better than the best, the limit is as far above the best.
  [[nodiscard]] bool diverges(double threshold) const;

  [[nodiscard]] const std::vector<Point>& points() const { return points_; }

  /// The learning rate at which the smoothed loss falls most steeply, the first 10 and the last step left out, and
  /// those whose loss is not finite. Slopes are central differences over the plot's axis. Unset with fewer than two
  /// points.
  [[nodiscard]] std::optional<double> suggestion() const;

  /// A line "lr,loss" and one for each step.
  [[nodiscard]] std::string csv() const;
  /// The curve, its axes and the suggestion, as a picture of 720 x 440.
  [[nodiscard]] std::string svg() const;

 private:
  [[nodiscard]] double axis(double lr) const;

  bool logarithmic_;
  double average_ = 0;
  double weight_ = 1;  // 0.98^n
  double best_ = 0;
  std::vector<Point> points_;
};

}  // namespace levin
