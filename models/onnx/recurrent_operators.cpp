#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <array>

#include "levin/models/onnx/operators.h"

namespace levin::onnx {

namespace {

// A kind of recurrent layer: how ONNX orders the gates that PyTorch has in another order.
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
    if (call.has("batch_sizes")) throw NotTranslated("of a PackedSequence; pad the texts instead");
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

// PyTorch: input, forget, cell, output; ONNX: input, output, forget, cell.
void lstm(OperatorCall& call) {
  Recurrence(call, {"LSTM", {0, 3, 1, 2}, {}, true}).translate();
}

// PyTorch: reset, update, new; ONNX: update, reset, hidden.
void gru(OperatorCall& call) {
  Recurrence(call, {"GRU", {1, 0, 2}, {}, false}).translate();
}

void rnn_tanh(OperatorCall& call) {
  Recurrence(call, {"RNN", {0}, {"Tanh"}, false}).translate();
}

void rnn_relu(OperatorCall& call) {
  Recurrence(call, {"RNN", {0}, {"Relu"}, false}).translate();
}

}  // namespace

Translations recurrent_translations() {
  return {{"lstm", lstm}, {"gru", gru}, {"rnn_tanh", rnn_tanh}, {"rnn_relu", rnn_relu}};
}

}  // namespace levin::onnx
