// A traced operator while it is translated: its arguments by their names in the schema, and the graph that its nodes
// are added to. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/models/onnx/graph.h"
#include "levin/models/onnx/program.h"

namespace levin::onnx {

/// Where a program's values are in the graph.
class ValueNames {
 public:
  virtual ~ValueNames() = default;
  /// Adds a parameter or a constant to the graph at its first use. Throws NotTranslated for what has no value.
  virtual std::string name_of(int64_t value) = 0;
  virtual void set_name(int64_t value, const std::string& name) = 0;
};

class OperatorCall {
 public:
  OperatorCall(const Program& program, const ProgramCall& call, ValueNames& names, GraphBuilder& graph);

  [[nodiscard]] GraphBuilder& graph() { return graph_; }

  // ---- arguments; functions that throw, throw NotTranslated --------------------------------------------------------
  // "self" and "input" are the first tensor, whichever of the two the overload calls it: aten::dropout has an input,
  // and aten::dropout_ a self.
  /// Whether the overload has such an argument, and it is neither None nor an undefined tensor.
  [[nodiscard]] bool has(std::string_view argument) const;
  [[nodiscard]] bool is_tensor(std::string_view argument) const;
  /// A tensor's name in the graph.
  [[nodiscard]] std::string in(std::string_view argument);
  /// The same as a tensor of `dtype`; a plain number becomes a constant.
  [[nodiscard]] std::string in(std::string_view argument, at::ScalarType dtype);
  [[nodiscard]] const ProgramValue& value(std::string_view argument) const;
  /// Those of a list of tensors; kNoValue for None.
  [[nodiscard]] const std::vector<int64_t>& list(std::string_view argument) const { return plain(argument).values; }
  [[nodiscard]] const ProgramValue& value(int64_t id) const;
  [[nodiscard]] std::string in(int64_t id);
  /// A tensor that the graph may hold in another form: a parameter's or constant's numbers.
  [[nodiscard]] const at::Tensor& numbers_of(int64_t id) const;

  [[nodiscard]] int64_t rank(std::string_view argument) const {
    return static_cast<int64_t>(value(argument).sizes.size());
  }
  [[nodiscard]] at::ScalarType dtype(std::string_view argument) const { return value(argument).dtype; }
  /// Of a dimension that has the same size for all batches and lengths; another one throws.
  [[nodiscard]] int64_t fixed_size(std::string_view argument, int64_t dim) const;
  /// Throws unless the images have a batch and channels besides `dims` dimensions.
  void check_batched(std::string_view images, size_t dims) const;

  [[nodiscard]] const BatchNumbers& batch_numbers(std::string_view argument) const { return plain(argument).numbers; }
  [[nodiscard]] std::vector<int64_t> whole_numbers(std::string_view argument) const;
  [[nodiscard]] int64_t whole_number(std::string_view argument) const;
  [[nodiscard]] int64_t whole_number(std::string_view argument, int64_t otherwise) const {
    return has(argument) ? whole_number(argument) : otherwise;
  }
  [[nodiscard]] double real(std::string_view argument) const;
  [[nodiscard]] double real(std::string_view argument, double otherwise) const {
    return has(argument) ? real(argument) : otherwise;
  }
  [[nodiscard]] std::vector<double> reals(std::string_view argument) const;
  /// False where the overload has no such argument.
  [[nodiscard]] bool flag(std::string_view argument) const;
  [[nodiscard]] std::string text(std::string_view argument, const std::string& otherwise) const;
  /// A dimension from 0 to the rank of `of` - 1.
  [[nodiscard]] int64_t dimension(std::string_view argument, std::string_view of = "self") const;
  /// Dimensions; all of `of` for None and an empty list.
  [[nodiscard]] std::vector<int64_t> dimensions(std::string_view argument, std::string_view of = "self") const;

  // ---- results ---------------------------------------------------------------------------------------------------
  [[nodiscard]] size_t results() const { return call_.results.size(); }
  [[nodiscard]] const ProgramValue& result(size_t number = 0) const { return value(call_.results.at(number)); }
  void give(const std::string& name, size_t number = 0);

  // ---- what many operators need ----------------------------------------------------------------------------------
  /// `name` reshaped; one size may depend on the batch.
  [[nodiscard]] std::string reshaped(const std::string& name, const BatchNumbers& sizes);
  /// Expanded to sizes that may all depend on the batch.
  [[nodiscard]] std::string expanded(const std::string& name, const BatchNumbers& sizes) {
    return graph_.add("Expand", {name, graph_.batch_numbers(sizes)});
  }
  [[nodiscard]] std::string cast_from(const std::string& name, at::ScalarType from, at::ScalarType to) {
    return from == to ? name : graph_.cast(name, to);
  }
  /// How many elements there are along all of these dimensions, as a number of `dtype`.
  [[nodiscard]] std::string elements(std::string_view of, const std::vector<int64_t>& dims, at::ScalarType dtype);
  /// ReduceMean and its relatives, of which all but ReduceSum took axes as an attribute before version 18.
  [[nodiscard]] std::string reduced(const std::string& op, const std::string& name, const std::vector<int64_t>& dims,
                                    bool keepdim);
  /// The type in which PyTorch computes with both.
  [[nodiscard]] at::ScalarType common_type(std::string_view one, std::string_view other) const;

 private:
  [[nodiscard]] const ProgramArgument* find(std::string_view argument) const;
  [[nodiscard]] const ProgramArgument& plain(std::string_view argument) const;

  const Program& program_;
  const ProgramCall& call_;
  ValueNames& names_;
  GraphBuilder& graph_;
  // PyTorch takes a single number for a tensor (1) along a dimension, and ONNX does not. These are, and the results are
  // given the sizes that they had.
  std::map<int64_t, ProgramValue> lifted_ = {};
};

/// A value of the graph within a formula: x * 0.5 adds a node, and 0.5 as a constant of the result's type.
class Term {
 public:
  Term(OperatorCall& call, std::string name) : Term(call.graph(), std::move(name), call.result().dtype) {}
  Term(GraphBuilder& graph, std::string name, at::ScalarType dtype)
      : graph_(&graph), name_(std::move(name)), dtype_(dtype) {}

  [[nodiscard]] const std::string& name() const { return name_; }
  operator const std::string&() const { return name_; }  // for GraphBuilder::add
  [[nodiscard]] Term number(double value) const { return as(graph_->number(value, dtype_)); }
  /// A different value of the same formula.
  [[nodiscard]] Term as(std::string name) const { return {*graph_, std::move(name), dtype_}; }
  [[nodiscard]] GraphBuilder& graph() const { return *graph_; }

 private:
  GraphBuilder* graph_;
  std::string name_;
  at::ScalarType dtype_;
};

/// A term, or a number.
struct Operand {
  Operand(const Term& of) : term(&of) {}
  Operand(double of) : value(of) {}
  const Term* term = nullptr;
  double value = 0;
};

/// The result of a new node; at least one operand is a term.
[[nodiscard]] Term node(const char* op, std::initializer_list<Operand> operands);

[[nodiscard]] inline Term operator+(const Operand& a, const Operand& b) {
  return node("Add", {a, b});
}
[[nodiscard]] inline Term operator-(const Operand& a, const Operand& b) {
  return node("Sub", {a, b});
}
[[nodiscard]] inline Term operator*(const Operand& a, const Operand& b) {
  return node("Mul", {a, b});
}
[[nodiscard]] inline Term operator/(const Operand& a, const Operand& b) {
  return node("Div", {a, b});
}

// Which operators of PyTorch can be translated to ONNX, and how: one table, of which each file holds a part.

/// first, first + 1, …: `count` numbers, such as the dimensions of a tensor.
[[nodiscard]] std::vector<int64_t> order_of(int64_t count, int64_t first = 0);

/// Adds the nodes of one call to its graph, and gives each of its results that it can a name. Throws NotTranslated.
using Translation = std::function<void(OperatorCall&)>;
using Translations = std::map<std::string, Translation>;
/// Each translation with the operators that it serves, separated by spaces.
using TranslationRows = std::vector<std::pair<Translation, std::string>>;

[[nodiscard]] TranslationRows elementwise_translations();  // arithmetic, activations, comparisons, conditions
[[nodiscard]] TranslationRows layer_translations();        // matrix products, attention, normalizations, lstm, gru, rnn
[[nodiscard]] TranslationRows image_translations();      // convolutions, pooling, padding, resizing, windows, shuffles
[[nodiscard]] TranslationRows shape_translations();      // views, copies, casts, cat, split, slice, zeros, arange
[[nodiscard]] TranslationRows index_translations();      // embedding, gather, index, scatter, index_add, embedding_bag
[[nodiscard]] TranslationRows reduction_translations();  // sum, max, topk, cumsum, losses

/// All translations, by functional name ("add" for aten::add, aten::add_ and all their overloads).
[[nodiscard]] const Translations& translations();

// Translates a traced program to a graph of ONNX.

struct PortNames {
  std::vector<std::string> inputs =
      {};  // of all inputs, or of the inputs that an output depends on; none: the trace's names
  std::vector<std::string> outputs = {};
};

/// Inputs that no output depends on are left out. Throws Error listing every operator without a translation, with how
/// often it is called and where; Error if no output depends on an input, or an output has no translation; ConfigError
/// if the number of names is not the number of inputs.
[[nodiscard]] Graph make_graph(const Program& program, const PortNames& names, int64_t opset);

}  // namespace levin::onnx
