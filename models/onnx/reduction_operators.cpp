#include <cmath>

#include "levin/models/onnx/operators.h"

namespace levin::onnx {

namespace {

using Numbers = std::vector<int64_t>;

std::string reduced_by(OperatorCall& call, const std::string& op, const std::string& x) {
  return call.reduced(op, x, call.dimensions("dim"), call.flag("keepdim"));
}

template <const char* kOp>
void reduce(OperatorCall& call) {
  call.give(reduced_by(call, kOp, call.in("self", call.result().dtype)));
}

constexpr char kReduceSum[] = "ReduceSum", kReduceMean[] = "ReduceMean", kReduceMax[] = "ReduceMax",
               kReduceMin[] = "ReduceMin", kReduceProd[] = "ReduceProd", kLogSumExp[] = "ReduceLogSumExp",
               kArgMax[] = "ArgMax", kArgMin[] = "ArgMin";

// max and min: of all elements, along a dimension (with its indices), or of two tensors element by element.
template <const char* kReduce, const char* kArg, const char* kElementwise>
void extreme(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const at::ScalarType dtype = call.result().dtype;
  if (call.has("other")) return call.give(graph.add(kElementwise, {call.in("self", dtype), call.in("other", dtype)}));
  const std::string x = call.in("self");
  call.give(reduced_by(call, kReduce, x));
  if (call.results() < 2) return;
  call.give(
      graph.add(kArg, {x}, {{"axis", call.dimension("dim")}, {"keepdims", int64_t{call.flag("keepdim") ? 1 : 0}}}), 1);
}

constexpr char kTwoMax[] = "Max", kTwoMin[] = "Min";

// Of the flattened tensor without a dimension.
template <const char* kOp>
void arg_extreme(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const int64_t keeps = call.flag("keepdim") ? 1 : 0;
  if (call.has("dim")) {
    return call.give(graph.add(kOp, {call.in("self")}, {{"axis", call.dimension("dim")}, {"keepdims", keeps}}));
  }
  const std::string flat = graph.add("Reshape", {call.in("self"), graph.numbers({-1})});
  const std::string place = graph.add(kOp, {flat}, {{"axis", int64_t{0}}, {"keepdims", int64_t{0}}});
  call.give(keeps == 1 ? call.reshaped(place, call.result().sizes) : place);
}

// Whether any, or all, differ from 0.
template <const char* kOp>
void test(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const std::string truths = call.cast_from(call.in("self", at::kBool), at::kBool, at::kInt);
  call.give(graph.cast(reduced_by(call, kOp, truths), call.result().dtype));
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
  const std::string truths = call.cast_from(call.in("self", at::kBool), at::kBool, at::kLong);
  call.give(reduced_by(call, "ReduceSum", truths));
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
template <const char* kOp>
void running(OperatorCall& call) {
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
    x = graph.add("Concat", {first, graph.add(kOp, {later, earlier})}, {{"axis", dim}});
  }
  call.give(x);
}

constexpr char kProduct[] = "Mul";

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

}  // namespace

Translations reduction_translations() {
  return {{"sum", reduce<kReduceSum>},
          {"mean", reduce<kReduceMean>},
          {"amax", reduce<kReduceMax>},
          {"amin", reduce<kReduceMin>},
          {"prod", reduce<kReduceProd>},
          {"logsumexp", reduce<kLogSumExp>},
          {"max", extreme<kReduceMax, kArgMax, kTwoMax>},
          {"min", extreme<kReduceMin, kArgMin, kTwoMin>},
          {"argmax", arg_extreme<kArgMax>},
          {"argmin", arg_extreme<kArgMin>},
          {"any", test<kReduceMax>},
          {"all", test<kReduceMin>},
          {"var", var},
          {"std", std_deviation},
          {"var_mean", var_mean},
          {"std_mean", std_mean},
          {"aminmax", aminmax},
          {"count_nonzero", count_nonzero},
          {"norm", norm},
          {"linalg_vector_norm", norm},
          {"cumsum", cumsum},
          {"cumprod", running<kProduct>},
          {"cummax", running<kTwoMax>},
          {"cummin", running<kTwoMin>},
          {"topk", topk},
          {"sort", sort}};
}

}  // namespace levin::onnx
