// Parameters whose number of rows changes while they are trained, such as points that are split and removed.
//
//   select_rows(optimizer, {points, colours}, torch::cat({kept, split, split}), kept.size(0));
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <vector>

namespace levin {

class Optimizer;

/// Row k of each of `params` becomes its old row `rows`[k], (n) int64, and so does the optimizer's state of it if
/// k < `kept`; the state of the other rows becomes 0. Gradients of `params` are dropped. The tensors stay the same
/// objects. Under a Fabric use FabricOptimizer::select_rows. Throws Error, changing nothing, for a tensor of another
/// optimizer or one that is given twice, rows that do not exist, and an optimizer whose state does not have the shape
/// of its parameter or holds weights (Lookahead, AveragingOptimizer).
void select_rows(Optimizer& optimizer, const std::vector<at::Tensor>& params, const at::Tensor& rows, int64_t kept);
/// Throws what select_rows() would throw.
void check_select_rows(const Optimizer& optimizer, const std::vector<at::Tensor>& params, const at::Tensor& rows,
                       int64_t kept);

}  // namespace levin
