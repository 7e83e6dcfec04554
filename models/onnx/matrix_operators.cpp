#include <ATen/ops/ones.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "levin/models/onnx/operators.h"

namespace levin::onnx {

namespace {

std::string scaled(OperatorCall& call, const std::string& x, double by) {
  return by == 1 ? x : call.graph().add("Mul", {x, call.graph().number(by, call.result().dtype)});
}

std::string with_last_two_swapped(OperatorCall& call, const std::string& x, int64_t rank) {
  std::vector<int64_t> order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return call.graph().add("Transpose", {x}, {{"perm", order}});
}

// x W^T + b
void linear(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const bool is_matrix = call.rank("weight") == 2;
  if (is_matrix && call.rank("input") == 2) {
    std::vector<std::string> inputs{call.in("input"), call.in("weight")};
    if (call.has("bias")) inputs.push_back(call.in("bias"));
    return call.give(graph.add("Gemm", inputs, {{"transB", int64_t{1}}}));
  }
  std::string weight = call.in("weight");
  if (is_matrix) weight = graph.add("Transpose", {weight}, {{"perm", std::vector<int64_t>{1, 0}}});
  const std::string y = graph.add("MatMul", {call.in("input"), weight});
  call.give(call.has("bias") ? graph.add("Add", {y, call.in("bias")}) : y);
}

template <const char* kOther>
void product(OperatorCall& call) {
  call.give(call.graph().add("MatMul", {call.in("self"), call.in(kOther)}));
}

constexpr char kOther[] = "other", kMat2[] = "mat2", kTensor[] = "tensor", kVec[] = "vec";

// beta * self + alpha * one @ other
void add_product(OperatorCall& call, const std::string& one, const std::string& other) {
  const std::string y = scaled(call, call.graph().add("MatMul", {call.in(one), call.in(other)}), call.real("alpha", 1));
  const double beta = call.real("beta", 1);
  if (beta == 0) return call.give(y);
  call.give(call.graph().add("Add", {scaled(call, call.in("self"), beta), y}));
}

void addmm(OperatorCall& call) {
  if (!at::isFloatingType(call.result().dtype)) return add_product(call, "mat1", "mat2");
  call.give(call.graph().add("Gemm", {call.in("mat1"), call.in("mat2"), call.in("self")},
                             {{"alpha", call.real("alpha", 1)}, {"beta", call.real("beta", 1)}}));
}

void baddbmm(OperatorCall& call) {
  add_product(call, "batch1", "batch2");
}

void addmv(OperatorCall& call) {
  add_product(call, "mat", "vec");
}

void einsum(OperatorCall& call) {
  std::string equation = call.text("equation", "");
  std::erase(equation, ' ');
  std::vector<std::string> operands;
  for (const int64_t id : call.list("tensors")) operands.push_back(call.in(id));
  call.give(call.graph().add("Einsum", operands, {{"equation", equation}}));
}

// sum over i, j of input1_i weight_oij input2_j, and a bias
void bilinear(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const std::string y = graph.add("Einsum", {call.in("input1"), call.in("weight"), call.in("input2")},
                                  {{"equation", std::string("...i,oij,...j->...o")}});
  call.give(call.has("bias") ? graph.add("Add", {y, call.in("bias")}) : y);
}

// Distances of all pairs of rows, (…, P, M) and (…, R, M).
void cdist(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const double order = call.real("p", 2);
  if (order != 1 && order != 2) throw NotTranslated("only of order 1 or 2");
  const std::string apart = graph.add("Sub", {graph.add("Unsqueeze", {call.in("x1"), graph.numbers({-2})}),
                                              graph.add("Unsqueeze", {call.in("x2"), graph.numbers({-3})})});
  call.give(call.reduced(order == 1 ? "ReduceL1" : "ReduceL2", apart, {call.rank("x1")}, /*keepdim=*/false));
}

void outer(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const at::ScalarType dtype = call.result().dtype;
  const std::string column = graph.add("Unsqueeze", {call.in("self", dtype), graph.numbers({1})});
  call.give(graph.add("Mul", {column, call.in("vec2", dtype)}));
}

// ---- attention -----------------------------------------------------------------------------------------------------

// (…, heads of keys, S, E) with each head as often in a row as queries share it.
std::string for_each_query_head(OperatorCall& call, const std::string& argument, const BatchNumbers& query) {
  const BatchNumbers sizes = call.value(argument).sizes;
  const std::string x = call.in(argument);
  if (!call.flag("enable_gqa") || sizes.size() < 3) return x;
  const size_t heads = sizes.size() - 3;
  if (sizes[heads] == query[heads]) return x;
  BatchNumbers wide = sizes, joined = sizes;
  wide.insert(wide.begin() + static_cast<int64_t>(heads) + 1, BatchNumber{0, query[heads].rest / sizes[heads].rest});
  joined[heads] = query[heads];
  const auto position = static_cast<int64_t>(heads) + 1;
  const std::string apart = call.graph().add("Unsqueeze", {x, call.graph().numbers({position})});
  return call.reshaped(call.expanded(apart, wide), joined);
}

// A query sees the keys up to its own position.
std::string causal_mask(OperatorCall& call) {
  const auto length = [&](const char* argument) { return *(call.value(argument).sizes.rbegin() + 1); };
  const BatchNumber queries = length("query"), keys = length("key");
  if (queries.is_fixed() && keys.is_fixed()) {
    return call.graph().constant(at::ones({queries.rest, keys.rest}, at::kBool).tril());
  }
  const std::string ones = call.expanded(call.graph().whole_number(1, at::kLong), {queries, keys});
  return call.graph().cast(call.graph().add("Trilu", {ones}, {{"upper", int64_t{0}}}), at::kBool);
}

// Without a scale, over the root of the features.
std::string scaled_query(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const std::string query = call.in("query");
  const BatchNumber features = call.value("query").sizes.back();
  if (call.has("scale")) return scaled(call, query, call.real("scale"));
  if (features.is_fixed()) return scaled(call, query, 1 / std::sqrt(static_cast<double>(features.rest)));
  const std::string count = graph.cast(graph.batch_number(features), call.result().dtype);
  return graph.add("Div", {query, graph.add("Sqrt", {count})});
}

// softmax(scale Q K^T + mask) V. A query that sees no key gets zeros.
void attention(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  if (call.real("dropout_p", 0) != 0) throw NotTranslated("with dropout; put the model into evaluation mode (eval())");
  const at::ScalarType dtype = call.result().dtype;
  const BatchNumbers query = call.value("query").sizes;
  const std::string keys = for_each_query_head(call, "key", query), values = for_each_query_head(call, "value", query);
  const std::string scores =
      graph.add("MatMul", {scaled_query(call), with_last_two_swapped(call, keys, call.rank("key"))});
  const Attributes last{{"axis", int64_t{-1}}};
  const bool is_added = call.has("attn_mask") && call.dtype("attn_mask") != at::kBool;
  std::string seen = call.flag("is_causal") ? causal_mask(call) : "";
  if (call.has("attn_mask") && !is_added) seen = call.in("attn_mask");
  std::string weights;
  if (is_added) {
    const std::string raw = graph.add("Softmax", {graph.add("Add", {scores, call.in("attn_mask", dtype)})}, last);
    weights = graph.add("Where", {graph.add("IsNaN", {raw}), graph.number(0, dtype), raw});
  } else if (seen.empty()) {
    weights = graph.add("Softmax", {scores}, last);
  } else {
    const double never = -std::numeric_limits<double>::infinity();
    const std::string raw =
        graph.add("Softmax", {graph.add("Where", {seen, scores, graph.number(never, dtype)})}, last);
    weights = call.has("attn_mask") ? graph.add("Where", {seen, raw, graph.number(0, dtype)}) : raw;
  }
  call.give(graph.add("MatMul", {weights, values}));
}

}  // namespace

Translations matrix_translations() {
  return {{"linear", linear},
          {"matmul", product<kOther>},
          {"mm", product<kMat2>},
          {"bmm", product<kMat2>},
          {"mv", product<kVec>},
          {"dot", product<kTensor>},
          {"addmm", addmm},
          {"baddbmm", baddbmm},
          {"addmv", addmv},
          {"einsum", einsum},
          {"outer", outer},
          {"_cdist_forward", cdist},
          {"_euclidean_dist", cdist},
          {"bilinear", bilinear},
          {"scaled_dot_product_attention", attention},
          {"_scaled_dot_product_flash_attention_for_cpu", attention}};
}

}  // namespace levin::onnx
