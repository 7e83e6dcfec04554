#include <ATen/core/Reduction.h>

#include <algorithm>
#include <cmath>

#include "levin/models/onnx/operators.h"

namespace levin::onnx {

namespace {

using Numbers = std::vector<int64_t>;

std::string reduced_by(OperatorCall& call, const std::string& op, const std::string& x) {
  return call.reduced(op, x, call.dimensions("dim"), call.flag("keepdim"));
}

Translation reduce(const char* op) {
  return [op](OperatorCall& call) { call.give(reduced_by(call, op, call.in("self", call.result().dtype))); };
}

// max and min: of all elements, along a dimension (with its indices), or of two tensors element by element.
Translation extreme(const std::string& op) {
  return [op](OperatorCall& call) {
    GraphBuilder& graph = call.graph();
    const at::ScalarType dtype = call.result().dtype;
    if (call.has("other")) return call.give(graph.add(op, {call.in("self", dtype), call.in("other", dtype)}));
    const std::string x = call.in("self");
    call.give(reduced_by(call, "Reduce" + op, x));
    if (call.results() < 2) return;
    const int64_t keeps = call.flag("keepdim") ? 1 : 0;
    call.give(graph.add("Arg" + op, {x}, {{"axis", call.dimension("dim")}, {"keepdims", keeps}}), 1);
  };
}

// Of the flattened tensor without a dimension.
Translation arg_extreme(const char* op) {
  return [op](OperatorCall& call) {
    GraphBuilder& graph = call.graph();
    const int64_t keeps = call.flag("keepdim") ? 1 : 0;
    if (call.has("dim")) {
      return call.give(graph.add(op, {call.in("self")}, {{"axis", call.dimension("dim")}, {"keepdims", keeps}}));
    }
    const std::string flat = graph.add("Reshape", {call.in("self"), graph.numbers({-1})});
    const std::string index = graph.add(op, {flat}, {{"axis", int64_t{0}}, {"keepdims", int64_t{0}}});
    call.give(keeps == 1 ? call.reshaped(index, call.result().sizes) : index);
  };
}

// Whether any, or all, differ from 0.
Translation any_or_all(const char* op) {
  return [op](OperatorCall& call) {
    const std::string bools = call.cast_from(call.in("self", at::kBool), at::kBool, at::kInt);
    call.give(call.graph().cast(reduced_by(call, op, bools), call.result().dtype));
  };
}

// The mean square of the distances from the mean, over (count - correction).
std::string variance(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const at::ScalarType dtype = call.result().dtype;
  const Numbers dims = call.dimensions("dim");
  double correction = call.real("correction", 1);
  if (call.has("unbiased")) correction = call.flag("unbiased") ? 1 : 0;
  const std::string x = call.in("self");
  const std::string distance = graph.add("Sub", {x, call.reduced("ReduceMean", x, dims, /*keepdim=*/true)});
  const std::string sum = call.reduced("ReduceSum", graph.add("Mul", {distance, distance}), dims, call.flag("keepdim"));
  const std::string count = graph.add("Sub", {call.elements("self", dims, dtype), graph.number(correction, dtype)});
  return graph.add("Div", {sum, graph.add("Max", {count, graph.number(0, dtype)})});
}

void var(OperatorCall& call) {
  call.give(variance(call));
}

void std_deviation(OperatorCall& call) {
  call.give(call.graph().add("Sqrt", {variance(call)}));
}

void var_mean(OperatorCall& call) {
  var(call);
  call.give(reduced_by(call, "ReduceMean", call.in("self")), 1);
}

void std_mean(OperatorCall& call) {
  std_deviation(call);
  call.give(reduced_by(call, "ReduceMean", call.in("self")), 1);
}

void aminmax(OperatorCall& call) {
  call.give(reduced_by(call, "ReduceMin", call.in("self")), 0);
  call.give(reduced_by(call, "ReduceMax", call.in("self")), 1);
}

void count_nonzero(OperatorCall& call) {
  const std::string bools = call.cast_from(call.in("self", at::kBool), at::kBool, at::kLong);
  call.give(reduced_by(call, "ReduceSum", bools));
}

void norm(OperatorCall& call) {
  const std::string x = call.in("self", call.result().dtype);
  const double order = call.has("ord") ? call.real("ord") : call.real("p", 2);
  if (order == 1) return call.give(reduced_by(call, "ReduceL1", x));
  if (order == 2) return call.give(reduced_by(call, "ReduceL2", x));
  GraphBuilder& graph = call.graph();
  const at::ScalarType dtype = call.result().dtype;
  const std::string sizes = graph.add("Abs", {x});
  if (std::isinf(order)) return call.give(reduced_by(call, order > 0 ? "ReduceMax" : "ReduceMin", sizes));
  if (order == 0) return call.give(reduced_by(call, "ReduceSum", graph.add("Sign", {sizes})));
  const std::string sum = reduced_by(call, "ReduceSum", graph.add("Pow", {sizes, graph.number(order, dtype)}));
  call.give(graph.add("Pow", {sum, graph.number(1 / order, dtype)}));
}

void cumsum(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const at::ScalarType dtype = call.result().dtype;
  call.give(graph.add("CumSum", {call.in("self", dtype), graph.whole_number(call.dimension("dim"), at::kLong)}));
}

// Each element combined with all before it along a dimension, by steps of 1, 2, 4, … elements: Hillis and Steele, Data
// parallel algorithms, 1986.
Translation running(const char* op) {
  return [op](OperatorCall& call) {
    GraphBuilder& graph = call.graph();
    std::string x = call.in("self", call.result().dtype);
    const int64_t dim = call.dimension("dim");
    const int64_t size = call.fixed_size("self", dim);
    const std::string axis = graph.numbers({dim}), zero = graph.numbers({0}), end = graph.numbers({size});
    for (int64_t step = 1; step < size; step *= 2) {
      const std::string from = graph.numbers({step});
      const std::string first = graph.add("Slice", {x, zero, from, axis}),
                        later = graph.add("Slice", {x, from, end, axis}),
                        earlier = graph.add("Slice", {x, zero, graph.numbers({-step}), axis});
      x = graph.add("Concat", {first, graph.add(op, {later, earlier})}, {{"axis", dim}});
    }
    call.give(x);
  };
}

void give_top(OperatorCall& call, const BatchNumber& count, bool largest) {
  const int64_t dim = call.dimension("dim");
  const auto found =
      call.graph().add_several(2, "TopK", {call.in("self"), call.graph().batch_numbers({count})},
                               {{"axis", dim}, {"largest", int64_t{largest ? 1 : 0}}, {"sorted", int64_t{1}}});
  call.give(found[0], 0);
  call.give(found[1], 1);
}

void topk(OperatorCall& call) {
  give_top(call, call.batch_numbers("k").at(0), call.flag("largest"));
}

void sort(OperatorCall& call) {
  give_top(call, call.value("self").sizes.at(static_cast<size_t>(call.dimension("dim"))), call.flag("descending"));
}

// The losses of all elements, their mean or their sum.
void give_reduced(OperatorCall& call, const std::string& losses) {
  const int64_t reduction = call.whole_number("reduction", at::Reduction::Mean);
  if (reduction == at::Reduction::None) return call.give(losses);
  const auto dims = order_of(std::max(call.rank("self"), call.rank("target")));
  call.give(
      call.reduced(reduction == at::Reduction::Mean ? "ReduceMean" : "ReduceSum", losses, dims, /*keepdim=*/false));
}

Term loss_argument(OperatorCall& call, const char* name) {
  return {call, call.in(name, call.result().dtype)};
}

Term difference(OperatorCall& call) {
  const Term x = loss_argument(call, "self");
  return x - loss_argument(call, "target");
}

void mse_loss(OperatorCall& call) {
  const Term d = difference(call);
  give_reduced(call, d * d);
}

void l1_loss(OperatorCall& call) {
  give_reduced(call, node("Abs", {difference(call)}));
}

// A parabola up to `bound`, then a line: scale * d^2 / 2, and slope * (d - bound / 2).
void give_huber(OperatorCall& call, double bound, double scale, double slope) {
  const Term d = node("Abs", {difference(call)}), parabola = d * d * (scale / 2), line = (d - bound / 2) * slope;
  give_reduced(call, node("Where", {node("Less", {d, bound}), parabola, line}));
}

void smooth_l1_loss(OperatorCall& call) {
  const double beta = call.real("beta", 1);
  if (beta == 0) return l1_loss(call);
  give_huber(call, beta, 1 / beta, 1);
}

void huber_loss(OperatorCall& call) {
  const double delta = call.real("delta", 1);
  give_huber(call, delta, 1, delta);
}

// -(y log x + (1 - y) log(1 - x)), each logarithm at least -100
void binary_cross_entropy(OperatorCall& call) {
  const Term x = loss_argument(call, "self"), y = loss_argument(call, "target");
  const auto log_of = [](const Term& p) { return node("Max", {node("Log", {p}), -100}); };
  const Term yes = y * log_of(x), no = (1 - y) * log_of(1 - x), losses = node("Neg", {yes + no});
  give_reduced(call, call.has("weight") ? losses * loss_argument(call, "weight") : losses);
}

// Of log-probabilities (N, C, …) and classes (N, …).
void nll_loss(OperatorCall& call) {
  if (call.rank("self") < 2) throw NotTranslated("only of batches (N, C, …)");
  std::vector<std::string> inputs{call.in("self"), call.in("target")};
  if (call.has("weight")) inputs.push_back(call.in("weight"));
  const std::vector<std::string> reductions{"none", "mean", "sum"};
  call.give(call.graph().add(
      "NegativeLogLikelihoodLoss", inputs,
      {{"ignore_index", call.whole_number("ignore_index", -100)},
       {"reduction", reductions.at(static_cast<size_t>(call.whole_number("reduction", at::Reduction::Mean)))}}));
}

}  // namespace

TranslationRows reduction_translations() {
  return {{reduce("ReduceSum"), "sum"},
          {reduce("ReduceMean"), "mean"},
          {reduce("ReduceMax"), "amax"},
          {reduce("ReduceMin"), "amin"},
          {reduce("ReduceProd"), "prod"},
          {reduce("ReduceLogSumExp"), "logsumexp"},
          {extreme("Max"), "max"},
          {extreme("Min"), "min"},
          {arg_extreme("ArgMax"), "argmax"},
          {arg_extreme("ArgMin"), "argmin"},
          {any_or_all("ReduceMax"), "any"},
          {any_or_all("ReduceMin"), "all"},
          {var, "var"},
          {std_deviation, "std"},
          {var_mean, "var_mean"},
          {std_mean, "std_mean"},
          {aminmax, "aminmax"},
          {count_nonzero, "count_nonzero"},
          {norm, "norm linalg_vector_norm"},
          {cumsum, "cumsum"},
          {running("Mul"), "cumprod"},
          {running("Max"), "cummax"},
          {running("Min"), "cummin"},
          {topk, "topk"},
          {sort, "sort"},
          {mse_loss, "mse_loss"},
          {l1_loss, "l1_loss"},
          {smooth_l1_loss, "smooth_l1_loss"},
          {huber_loss, "huber_loss"},
          {binary_cross_entropy, "binary_cross_entropy"},
          {nll_loss, "nll_loss_forward nll_loss2d_forward"}};
}

}  // namespace levin::onnx
