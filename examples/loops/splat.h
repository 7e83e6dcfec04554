// What both splat programs share: a picture, its crops, Gaussians in a plane, their renderer, and which of them are
// split, copied and removed (Kerbl et al. 2023, https://arxiv.org/abs/2308.04079, in two dimensions).
#pragma once

#include <torch/torch.h>

#include <cmath>
#include <numbers>
#include <vector>

constexpr int64_t kSteps = 300, kRefineEvery = 50, kReportEvery = 50, kFirstSplats = 100;
constexpr int64_t kSize = 48, kCrop = 32;  // pixels of the picture's and of a crop's side

/// Gaussians in the unit square, a row for each.
struct Splats {
  torch::Tensor means;      // (n, 2)
  torch::Tensor scales;     // (n, 2), logarithms of the standard deviations
  torch::Tensor angles;     // (n, 1)
  torch::Tensor colours;    // (n, 3), before the sigmoid
  torch::Tensor opacities;  // (n, 1), before the sigmoid
};

inline Splats random_splats() {
  const auto leaf = [](torch::Tensor tensor) { return tensor.set_requires_grad(true); };
  return {.means = leaf(torch::rand({kFirstSplats, 2})),
          .scales = leaf(torch::full({kFirstSplats, 2}, std::log(0.06))),
          .angles = leaf(torch::rand({kFirstSplats, 1})),
          .colours = leaf(torch::randn({kFirstSplats, 3})),
          .opacities = leaf(torch::zeros({kFirstSplats, 1}))};
}

/// The learning rate of the means, which decays exponentially.
inline double means_rate(int64_t step) {
  return 5e-3 * std::pow(0.1, static_cast<double>(step) / static_cast<double>(kSteps));
}

/// A part of the picture, as a camera would see it.
struct View {
  torch::Tensor points;   // (pixels, 2)
  torch::Tensor colours;  // (pixels, 3)
};

/// The picture's colours: a disc in front of slanted stripes.
inline torch::Tensor picture_at(const torch::Tensor& points) {
  const torch::Tensor x = points.select(1, 0), y = points.select(1, 1);
  const torch::Tensor disc = ((x - 0.4).square() + (y - 0.55).square() < 0.06).to(torch::kFloat);
  const torch::Tensor stripes = 0.5 + 0.5 * (14 * (x + 0.6 * y)).sin();
  const torch::Tensor behind = torch::stack({stripes, 0.3 + 0.4 * y, 1 - stripes}, 1);
  return torch::lerp(behind, torch::tensor({0.95F, 0.8F, 0.2F}).expand_as(behind), disc.unsqueeze(1));
}

inline std::vector<View> views_of_picture() {
  const torch::Tensor pixels = (torch::arange(kSize) + 0.5) / static_cast<double>(kSize);
  std::vector<View> views;
  for (int64_t top = 0; top + kCrop <= kSize; top += 8) {
    for (int64_t left = 0; left + kCrop <= kSize; left += 8) {
      const auto grid = torch::meshgrid({pixels.narrow(0, top, kCrop), pixels.narrow(0, left, kCrop)}, "ij");
      const torch::Tensor points = torch::stack({grid[1].flatten(), grid[0].flatten()}, 1);
      views.push_back({points, picture_at(points)});
    }
  }
  return views;
}

/// Returns the colours at `points`, (p, 3): the first splat is in front.
inline torch::Tensor render(const Splats& splats, const torch::Tensor& points) {
  const torch::Tensor offsets = points.unsqueeze(1) - splats.means;  // (p, n, 2)
  const torch::Tensor x = offsets.select(2, 0), y = offsets.select(2, 1), scales = splats.scales.exp();
  const torch::Tensor cos = splats.angles.cos().squeeze(1), sin = splats.angles.sin().squeeze(1);
  const torch::Tensor distances =
      ((x * cos + y * sin) / scales.select(1, 0)).square() + ((y * cos - x * sin) / scales.select(1, 1)).square();
  const torch::Tensor alphas = splats.opacities.sigmoid().squeeze(1) * (-0.5 * distances).exp() * 0.99;
  const torch::Tensor passes = torch::log1p(-alphas);
  return (alphas * (passes.cumsum(1) - passes).exp()).matmul(splats.colours.sigmoid());
}

inline torch::Tensor loss_of(const Splats& splats, const torch::Tensor& points, const torch::Tensor& colours) {
  return torch::l1_loss(render(splats, points), colours);
}

/// The next generation: row k continues the old row rows[k] if k < kept, and is a copy of it otherwise. The copies
/// begin with the halves of split rows.
struct Refinement {
  torch::Tensor rows;
  int64_t kept;
  int64_t halves;
};

/// Removes what is almost transparent; splits large splats, and copies small ones, whose means have large gradients.
inline Refinement plan_refinement(const Splats& splats, const torch::Tensor& gradients) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor visible = splats.opacities.squeeze(1).sigmoid() > 0.05;
  const torch::Tensor moves = visible.logical_and(gradients > gradients.quantile(0.8));
  const torch::Tensor large = splats.scales.amax(1).exp() > 0.04;
  const auto indices = [](const torch::Tensor& mask) { return mask.nonzero().squeeze(1); };
  const torch::Tensor kept = indices(visible.logical_and(moves.logical_and(large).logical_not()));
  const torch::Tensor split = indices(moves.logical_and(large));
  const torch::Tensor copied = indices(moves.logical_and(large.logical_not()));
  return {torch::cat({kept, split, split, copied}), kept.size(0), 2 * split.size(0)};
}

/// Draws the places of the halves of split splats, and makes them smaller.
inline void place_halves(Splats& splats, const Refinement& plan) {
  const torch::NoGradGuard no_grad;
  const auto halves = [&](const torch::Tensor& all) { return all.narrow(0, plan.kept, plan.halves); };
  halves(splats.means).add_(torch::randn({plan.halves, 2}) * halves(splats.scales).exp());
  halves(splats.scales).sub_(std::log(1.6));
}
