#include <ATen/core/Reduction.h>

#include <algorithm>
#include <numeric>

#include "levin/models/onnx/operators.h"

namespace levin::onnx {

namespace {

// The losses of all elements, their mean or their sum.
void give_reduced(OperatorCall& call, const std::string& losses) {
  const int64_t reduction = call.whole_number("reduction", at::Reduction::Mean);
  if (reduction == at::Reduction::None) return call.give(losses);
  std::vector<int64_t> dims(static_cast<size_t>(std::max(call.rank("self"), call.rank("target"))));
  std::iota(dims.begin(), dims.end(), 0);
  call.give(
      call.reduced(reduction == at::Reduction::Mean ? "ReduceMean" : "ReduceSum", losses, dims, /*keepdim=*/false));
}

std::string loss_number(OperatorCall& call, double number) {
  return call.graph().number(number, call.result().dtype);
}

std::string difference(OperatorCall& call) {
  const at::ScalarType dtype = call.result().dtype;
  return call.graph().add("Sub", {call.in("self", dtype), call.in("target", dtype)});
}

void mse_loss(OperatorCall& call) {
  const std::string apart = difference(call);
  give_reduced(call, call.graph().add("Mul", {apart, apart}));
}

void l1_loss(OperatorCall& call) {
  give_reduced(call, call.graph().add("Abs", {difference(call)}));
}

// A parabola up to `bound`, then a line: scale * d^2 / 2, and slope * (d - bound / 2).
void give_huber(OperatorCall& call, double bound, double scale, double slope) {
  GraphBuilder& graph = call.graph();
  const std::string d = graph.add("Abs", {difference(call)});
  const std::string square = graph.add("Mul", {graph.add("Mul", {d, d}), loss_number(call, scale / 2)});
  const std::string line =
      graph.add("Mul", {graph.add("Sub", {d, loss_number(call, bound / 2)}), loss_number(call, slope)});
  give_reduced(call, graph.add("Where", {graph.add("Less", {d, loss_number(call, bound)}), square, line}));
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
  GraphBuilder& graph = call.graph();
  const at::ScalarType dtype = call.result().dtype;
  const std::string x = call.in("self", dtype), y = call.in("target", dtype), one = loss_number(call, 1);
  const auto log_of = [&](const std::string& p) {
    return graph.add("Max", {graph.add("Log", {p}), loss_number(call, -100)});
  };
  const std::string yes = graph.add("Mul", {y, log_of(x)}),
                    no = graph.add("Mul", {graph.add("Sub", {one, y}), log_of(graph.add("Sub", {one, x}))});
  const std::string losses = graph.add("Neg", {graph.add("Add", {yes, no})});
  give_reduced(call, call.has("weight") ? graph.add("Mul", {losses, call.in("weight", dtype)}) : losses);
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

Translations loss_translations() {
  return {{"mse_loss", mse_loss},
          {"l1_loss", l1_loss},
          {"smooth_l1_loss", smooth_l1_loss},
          {"huber_loss", huber_loss},
          {"binary_cross_entropy", binary_cross_entropy},
          {"nll_loss_forward", nll_loss},
          {"nll_loss2d_forward", nll_loss}};
}

}  // namespace levin::onnx
