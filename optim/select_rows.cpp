#include "levin/optim/select_rows.h"

#include <ATen/ops/index_select.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <string>

#include "levin/core/options/error.h"
#include "levin/core/tensors.h"
#include "levin/libtorch/tensor_memory.h"
#include "levin/optim/averaging_optimizer.h"
#include "levin/optim/lookahead.h"
#include "levin/optim/optimizer.h"

namespace levin {

namespace {

constexpr const char* kUseAnother =
    " Use an optimizer whose state has a number for each gradient, such as Adam or SGD.";

// A new row's weights cannot begin with 0.
bool keeps_weights(const Optimizer& optimizer) {
  if (dynamic_cast<const AveragingOptimizer*>(&optimizer) != nullptr) return true;
  if (dynamic_cast<const Lookahead*>(&optimizer) != nullptr) return true;
  const auto* wrapping = dynamic_cast<const WrappingOptimizer*>(&optimizer);
  return wrapping != nullptr && keeps_weights(wrapping->inner());
}

size_t index_of(const at::Tensor& param, const std::vector<at::Tensor>& all) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const at::Tensor& one) { return one.is_same(param); });
  return static_cast<size_t>(found - all.begin());
}

void check_rows(const Optimizer& optimizer, const std::vector<at::Tensor>& params, const at::Tensor& rows,
                int64_t kept) {
  const std::string where = optimizer.name() + ": ";
  if (keeps_weights(optimizer))
    throw Error(where + "its state holds weights, which new rows do not have." + kUseAnother);
  if (!rows.defined() || rows.dim() != 1 || rows.scalar_type() != at::kLong || rows.numel() == 0) {
    throw Error(where + "rows must be indices of rows: a tensor of int64 of shape (n), at least one.");
  }
  if (kept < 0 || kept > rows.numel()) {
    throw Error(where + "kept must be between 0 and the " + count_of(rows.numel(), "row") + ", got " +
                std::to_string(kept) + ".");
  }
  const int64_t first = rows.min().item().toLong(), last = rows.max().item().toLong();
  const std::vector<at::Tensor> all = optimizer.parameters();
  for (size_t k = 0; k < params.size(); ++k) {
    const std::string what = where + "tensor " + std::to_string(k);
    if (const size_t same = index_of(params[k], params); same != k) {
      throw Error(what + " is the same as tensor " + std::to_string(same) + ". Give each tensor once.");
    }
    if (index_of(params[k], all) == all.size()) {
      throw Error(what + " is not a parameter of this optimizer. Give the tensors that it was made with.");
    }
    const int64_t has = params[k].dim() == 0 ? 0 : params[k].size(0);
    if (first >= 0 && last < has) continue;
    if (has == 0) throw Error(what + " has no rows: its shape is " + shape_text(params[k].sizes()) + ".");
    throw Error(what + ", of shape " + shape_text(params[k].sizes()) + ", has no row " +
                std::to_string(first < 0 ? first : last) + ". Select rows from 0 to " + std::to_string(has - 1) + ".");
  }
}

// The names of the tensors of `state` that have a row for each row of these parameters.
std::vector<std::string> names_with_rows(const Optimizer& optimizer, const State& state,
                                         const std::vector<at::Tensor>& params) {
  const std::vector<at::Tensor> all = optimizer.parameters();
  std::vector<std::string> names;
  for (const at::Tensor& param : params) {
    const std::string prefix = std::to_string(index_of(param, all)) + ".";
    for (auto it = state.tensors.lower_bound(prefix); it != state.tensors.end() && it->first.starts_with(prefix);
         ++it) {
      const std::string name = it->first.substr(prefix.size());
      const StateLayout layout = optimizer.layout(name);
      if (layout == StateLayout::scalar) continue;
      if (layout == StateLayout::own_shape || it->second.sizes() != param.sizes()) {
        throw Error(optimizer.name() + ": its state \"" + name + "\" does not have the shape of its parameter." +
                    kUseAnother);
      }
      names.push_back(it->first);
    }
  }
  return names;
}

}  // namespace

void check_select_rows(const Optimizer& optimizer, const std::vector<at::Tensor>& params, const at::Tensor& rows,
                       int64_t kept) {
  check_rows(optimizer, params, rows, kept);
  (void)names_with_rows(optimizer, optimizer.state_dict(), params);
}

void select_rows(Optimizer& optimizer, const std::vector<at::Tensor>& params, const at::Tensor& rows, int64_t kept) {
  check_rows(optimizer, params, rows, kept);
  const at::NoGradGuard no_grad;
  const auto selected = [&](const at::Tensor& from) { return at::index_select(from, 0, rows.to(from.device())); };
  State next = optimizer.state_dict();
  for (const std::string& name : names_with_rows(optimizer, next, params)) {
    at::Tensor& state = next.tensors.at(name);
    state = selected(state);
    state.narrow(0, kept, rows.numel() - kept).zero_();
  }
  std::vector<at::Tensor> values;
  for (const at::Tensor& param : params) values.push_back(selected(param.detach()));
  for (size_t k = 0; k < params.size(); ++k) replace_leaf_data(params[k], values[k]);
  optimizer.load_state_dict(next);
}

}  // namespace levin
