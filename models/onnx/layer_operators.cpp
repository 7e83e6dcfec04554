#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <cmath>
#include <limits>

#include "levin/models/onnx/operators.h"

namespace levin::onnx {

namespace {

std::string scaled(OperatorCall& call, const std::string& x, double by) {
  return by == 1 ? x : call.graph().add("Mul", {x, call.graph().number(by, call.result().dtype)});
}

std::string with_last_two_swapped(OperatorCall& call, const std::string& x, int64_t rank) {
  std::vector<int64_t> order = order_of(rank);
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

Translation product(const char* other) {
  return [other](OperatorCall& call) { call.give(call.graph().add("MatMul", {call.in("self"), call.in(other)})); };
}

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

// A weight or bias of these sizes, or the constant that changes nothing.
std::string weight_or(OperatorCall& call, const std::string& argument, const std::vector<int64_t>& sizes,
                      double number) {
  if (call.has(argument)) return call.in(argument);
  return call.graph().constant(at::full(sizes, number, at::TensorOptions().dtype(call.result().dtype)));
}

std::vector<int64_t> channels_of(OperatorCall& call) {
  const BatchNumber channels = call.value("input").sizes.at(1);
  if (!channels.is_fixed()) throw NotTranslated("the number of channels depends on the batch size");
  return {channels.rest};
}

// By the statistics of training, which the module keeps.
void give_by_kept_statistics(OperatorCall& call) {
  const auto channels = channels_of(call);
  call.give(call.graph().add("BatchNormalization",
                             {call.in("input"), weight_or(call, "weight", channels, 1),
                              weight_or(call, "bias", channels, 0), call.in("running_mean"), call.in("running_var")},
                             {{"epsilon", call.real("eps")}}));
}

// (C) as (C, 1, 1, …), for tensors (N, C, …)
std::string per_channel(OperatorCall& call, const std::string& argument, int64_t channels) {
  BatchNumbers sizes{BatchNumber{0, channels}};
  sizes.resize(static_cast<size_t>(call.rank("input")) - 1, BatchNumber{0, 1});
  return call.reshaped(call.in(argument), sizes);
}

std::string scaled_and_shifted(OperatorCall& call, std::string y, int64_t channels) {
  if (call.has("weight")) y = call.graph().add("Mul", {y, per_channel(call, "weight", channels)});
  if (call.has("bias")) y = call.graph().add("Add", {y, per_channel(call, "bias", channels)});
  return y;
}

// Without kept statistics, evaluation uses the batch's statistics too.
void batch_norm(OperatorCall& call) {
  if (call.has("running_mean") && !call.flag("training")) return give_by_kept_statistics(call);
  if (call.has("running_mean")) {
    throw NotTranslated("by the statistics of a batch; put the model into evaluation mode (eval())");
  }
  GraphBuilder& graph = call.graph();
  std::vector<int64_t> dims{0};
  for (int64_t dim = 2; dim < call.rank("input"); ++dim) dims.push_back(dim);
  const std::string x = call.in("input");
  const std::string distance = graph.add("Sub", {x, call.reduced("ReduceMean", x, dims, /*keepdim=*/true)});
  const std::string variance =
      call.reduced("ReduceMean", graph.add("Mul", {distance, distance}), dims, /*keepdim=*/true);
  const std::string root =
      graph.add("Sqrt", {graph.add("Add", {variance, graph.number(call.real("eps"), call.result().dtype)})});
  call.give(scaled_and_shifted(call, graph.add("Div", {distance, root}), channels_of(call).at(0)));
}

void layer_norm(OperatorCall& call) {
  const auto shape = call.whole_numbers("normalized_shape");
  std::vector<std::string> inputs{call.in("input"), weight_or(call, "weight", shape, 1)};
  if (call.has("bias")) inputs.push_back(call.in("bias"));
  call.give(call.graph().add("LayerNormalization", inputs,
                             {{"axis", -static_cast<int64_t>(shape.size())}, {"epsilon", call.real("eps")}}));
}

// x / sqrt(mean(x^2) + eps) * weight
void rms_norm(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const at::ScalarType dtype = call.result().dtype;
  const double smallest =
      dtype == at::kDouble ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  std::vector<int64_t> dims;
  const int64_t rank = call.rank("input");
  for (auto k = rank - static_cast<int64_t>(call.whole_numbers("normalized_shape").size()); k < rank; ++k)
    dims.push_back(k);
  const std::string x = call.in("input");
  const std::string mean = call.reduced("ReduceMean", graph.add("Mul", {x, x}), dims, /*keepdim=*/true);
  const std::string root =
      graph.add("Sqrt", {graph.add("Add", {mean, graph.number(call.real("eps", smallest), dtype)})});
  const std::string y = graph.add("Div", {x, root});
  call.give(call.has("weight") ? graph.add("Mul", {y, call.in("weight", dtype)}) : y);
}

// Wu and He, Group normalization, 2018: an instance normalization of (N, groups, the rest).
void group_norm(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const at::ScalarType dtype = call.result().dtype;
  const int64_t groups = call.whole_number(call.has("group") ? "group" : "num_groups"),
                channels = channels_of(call).at(0);
  const auto of_groups = [&](double number) { return graph.constant(at::full({groups}, number, dtype)); };
  const std::string grouped = graph.add("Reshape", {call.in("input"), graph.numbers({0, groups, -1})});
  const std::string normed =
      graph.add("InstanceNormalization", {grouped, of_groups(1), of_groups(0)}, {{"epsilon", call.real("eps")}});
  call.give(scaled_and_shifted(call, call.reshaped(normed, call.value("input").sizes), channels));
}

void instance_norm(OperatorCall& call) {
  if (!call.flag("use_input_stats")) return give_by_kept_statistics(call);
  const auto channels = channels_of(call);
  call.give(
      call.graph().add("InstanceNormalization",
                       {call.in("input"), weight_or(call, "weight", channels, 1), weight_or(call, "bias", channels, 0)},
                       {{"epsilon", call.real("eps")}}));
}

Translation softmax(const char* op) {
  return [op](OperatorCall& call) {
    call.give(call.graph().add(op, {call.in("self", call.result().dtype)}, {{"axis", call.dimension("dim")}}));
  };
}

void dropout(OperatorCall& call) {
  const bool is_training = !call.has("train") || call.flag("train");
  if (is_training && call.real("p") != 0)
    throw NotTranslated("in training mode; put the model into evaluation mode (eval())");
  call.give(call.in("input"));
}

// A kind of recurrent layer, with ONNX's order of its gates.
struct Cell {
  const char* op;
  std::vector<int64_t> gates;            // of PyTorch's, in ONNX's order
  std::vector<std::string> activations;  // "" for the usual ones
  bool has_cell_state;
};

at::Tensor with_gates(const at::Tensor& weights, const std::vector<int64_t>& gates) {
  const auto parts = weights.chunk(static_cast<int64_t>(gates.size()));
  std::vector<at::Tensor> ordered;
  for (const int64_t gate : gates) ordered.push_back(parts[static_cast<size_t>(gate)]);
  return at::cat(ordered);
}

class Recurrence {
 public:
  Recurrence(OperatorCall& call, Cell cell) : call_(call), graph_(call.graph()), cell_(std::move(cell)) {
    if (call.has("batch_sizes")) throw NotTranslated("of a PackedSequence; pad the samples instead");
    if (call.flag("train") && call.real("dropout", 0) != 0) {
      throw NotTranslated("with dropout; put the model into evaluation mode (eval())");
    }
    directions_ = call.flag("bidirectional") ? 2 : 1;
    per_layer_ = call.flag("has_biases") ? 4 : 2;
    layers_ = call.whole_number("num_layers");
    if (static_cast<int64_t>(call.list("params").size()) != layers_ * directions_ * per_layer_) {
      throw NotTranslated("with a projection (proj_size)");
    }
  }

  void translate() {
    // (T, batch, features)
    const bool batch_first = call_.flag("batch_first");
    const Attributes swapped{{"perm", std::vector<int64_t>{1, 0, 2}}};
    std::string x = call_.in("input");
    if (batch_first) x = graph_.add("Transpose", {x}, swapped);
    const std::vector<std::string> hidden = states(cell_.has_cell_state ? call_.list("hx").at(0) : kNoValue, "hx");
    std::vector<std::string> cells;
    if (cell_.has_cell_state) cells = states(call_.list("hx").at(1), "");
    std::vector<std::string> last_hidden, last_cells;
    for (int64_t layer = 0; layer < layers_; ++layer) {
      const auto at = static_cast<size_t>(layer);
      const auto results = run_layer(layer, x, hidden[at], cells.empty() ? "" : cells[at]);
      x = joined_directions(results[0]);
      last_hidden.push_back(results[1]);
      if (cell_.has_cell_state) last_cells.push_back(results[2]);
    }
    call_.give(batch_first ? graph_.add("Transpose", {x}, swapped) : x, 0);
    call_.give(graph_.add("Concat", last_hidden, {{"axis", int64_t{0}}}), 1);
    if (cell_.has_cell_state) call_.give(graph_.add("Concat", last_cells, {{"axis", int64_t{0}}}), 2);
  }

 private:
  // (layers * directions, batch, hidden), layer by layer
  std::vector<std::string> states(int64_t value, const std::string& argument) {
    const std::string all = value == kNoValue ? call_.in(argument) : call_.in(value);
    if (layers_ == 1) return {all};
    const std::vector<int64_t> sizes(static_cast<size_t>(layers_), directions_);
    return graph_.add_several(sizes.size(), "Split", {all, graph_.numbers(sizes)}, {{"axis", int64_t{0}}});
  }

  // One of a layer's parameters for all its directions, under the name of the first.
  std::string parameter(int64_t layer, int64_t number) {
    std::vector<at::Tensor> each;
    for (int64_t direction = 0; direction < directions_; ++direction) {
      each.push_back(with_gates(numbers(layer, direction, number), cell_.gates));
    }
    return graph_.add_initializer(parameter_name(layer, number), at::stack(each));
  }

  // Both biases of a direction, one after the other.
  std::string biases(int64_t layer) {
    std::vector<at::Tensor> each;
    for (int64_t direction = 0; direction < directions_; ++direction) {
      each.push_back(at::cat({with_gates(numbers(layer, direction, 2), cell_.gates),
                              with_gates(numbers(layer, direction, 3), cell_.gates)}));
    }
    return graph_.add_initializer(parameter_name(layer, 2), at::stack(each));
  }

  [[nodiscard]] int64_t parameter_id(int64_t layer, int64_t direction, int64_t number) const {
    return call_.list("params").at(static_cast<size_t>((layer * directions_ + direction) * per_layer_ + number));
  }
  [[nodiscard]] const at::Tensor& numbers(int64_t layer, int64_t direction, int64_t number) const {
    return call_.numbers_of(parameter_id(layer, direction, number));
  }
  [[nodiscard]] std::string parameter_name(int64_t layer, int64_t number) const {
    const std::string& name = call_.value(parameter_id(layer, 0, number)).name;
    return name.empty() ? "constant" : name;
  }

  // Outputs (T, directions, batch, hidden), and the last states (directions, batch, hidden).
  std::vector<std::string> run_layer(int64_t layer, const std::string& x, const std::string& hidden,
                                     const std::string& cell) {
    std::vector<std::string> inputs{
        x, parameter(layer, 0), parameter(layer, 1), per_layer_ == 4 ? biases(layer) : "", "", hidden};
    if (cell_.has_cell_state) inputs.push_back(cell);
    const int64_t width = numbers(layer, 0, 1).size(1);
    Attributes attributes{{"hidden_size", width},
                          {"direction", std::string(directions_ == 2 ? "bidirectional" : "forward")}};
    if (!cell_.activations.empty()) {
      attributes.emplace_back(
          "activations",
          directions_ == 1 ? cell_.activations : std::vector<std::string>{cell_.activations[0], cell_.activations[0]});
    }
    if (std::string(cell_.op) == "GRU") attributes.emplace_back("linear_before_reset", int64_t{1});
    return graph_.add_several(cell_.has_cell_state ? 3 : 2, cell_.op, inputs, attributes);
  }

  // (T, batch, directions * hidden)
  std::string joined_directions(const std::string& y) {
    if (directions_ == 1) return graph_.add("Squeeze", {y, graph_.numbers({1})});
    const std::string beside = graph_.add("Transpose", {y}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    return graph_.add("Reshape", {beside, graph_.numbers({0, 0, -1})});
  }

  OperatorCall& call_;
  GraphBuilder& graph_;
  Cell cell_;
  int64_t directions_ = 1, per_layer_ = 4, layers_ = 1;
};

Translation recurrent(Cell cell) {
  return [cell](OperatorCall& call) { Recurrence(call, cell).translate(); };
}

}  // namespace

TranslationRows layer_translations() {
  return {{linear, "linear"},
          {product("other"), "matmul"},
          {product("mat2"), "mm bmm"},
          {product("vec"), "mv"},
          {product("tensor"), "dot"},
          {addmm, "addmm"},
          {baddbmm, "baddbmm"},
          {addmv, "addmv"},
          {einsum, "einsum"},
          {outer, "outer"},
          {cdist, "_cdist_forward _euclidean_dist"},
          {bilinear, "bilinear"},
          {attention, "scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu"},
          {batch_norm, "batch_norm native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training"},
          {layer_norm, "layer_norm native_layer_norm"},
          {rms_norm, "rms_norm _fused_rms_norm"},
          {group_norm, "group_norm native_group_norm"},
          {instance_norm, "instance_norm"},
          {softmax("Softmax"), "softmax _softmax"},
          {softmax("LogSoftmax"), "log_softmax _log_softmax"},
          {dropout, "dropout native_dropout alpha_dropout feature_dropout feature_alpha_dropout"},
          // PyTorch: input, forget, cell, output; ONNX: input, output, forget, cell.
          {recurrent({"LSTM", {0, 3, 1, 2}, {}, true}), "lstm"},
          // PyTorch: reset, update, new; ONNX: update, reset, hidden.
          {recurrent({"GRU", {1, 0, 2}, {}, false}), "gru"},
          {recurrent({"RNN", {0}, {"Tanh"}, false}), "rnn_tanh"},
          {recurrent({"RNN", {0}, {"Relu"}, false}), "rnn_relu"}};
}

}  // namespace levin::onnx
