#include <ATen/ops/scalar_tensor.h>

#include <limits>
#include <numeric>

#include "levin/models/onnx/operators.h"

namespace levin::onnx {

namespace {

// Updates that go to places of a tensor along one dimension; index and updates have the same sizes.
struct Scattered {
  int64_t dim;
  std::string index;
  std::string updates;
  BatchNumbers sizes;
};

std::string scattered(OperatorCall& call, const std::string& into, const Scattered& what,
                      const std::string& reduction) {
  if (call.graph().opset() < 18 && (reduction == "max" || reduction == "min")) {
    throw NotTranslated("of the largest or smallest needs --opset 18");
  }
  Attributes attributes{{"axis", what.dim}};
  if (!reduction.empty()) attributes.emplace_back("reduction", reduction);
  return call.graph().add("ScatterElements", {into, what.index, what.updates}, attributes);
}

// A tensor's part that is as large as the index.
std::string updates_of(OperatorCall& call, const std::string& argument, const BatchNumbers& sizes) {
  GraphBuilder& graph = call.graph();
  const at::ScalarType dtype = call.result().dtype;
  const std::string all = call.in(argument, dtype);
  if (!call.is_tensor(argument) || call.rank(argument) == 0) return call.expanded(all, sizes);
  if (call.value(argument).sizes == sizes) return all;
  return graph.add("Slice", {all, graph.numbers(std::vector<int64_t>(sizes.size(), 0)), graph.batch_numbers(sizes)});
}

// scatter(self, dim, index, src or value), of indices for each element.
Scattered element_wise(OperatorCall& call) {
  const BatchNumbers sizes = call.value("index").sizes;
  return {call.dimension("dim"), call.in("index"), updates_of(call, call.is_tensor("src") ? "src" : "value", sizes),
          sizes};
}

// index_add(self, dim, index, source), of an index for each row: as long as the source along the dimension, and for all
// of the others.
Scattered row_wise(OperatorCall& call, const std::string& source, BatchNumbers sizes) {
  const int64_t dim = call.dimension("dim");
  BatchNumbers column(sizes.size(), BatchNumber{0, 1});
  column[static_cast<size_t>(dim)] = sizes[static_cast<size_t>(dim)];
  const std::string index = call.expanded(call.reshaped(call.in("index"), column), sizes);
  return {dim, index, updates_of(call, source, sizes), sizes};
}

// A name of PyTorch's in ONNX.
std::string reduction_of(const std::string& name) {
  if (name == "sum" || name == "add" || name == "mean") return "add";
  if (name == "prod" || name == "multiply") return "mul";
  return name == "amax" ? "max" : "min";
}

// What changes nothing.
at::Tensor identity_of(const std::string& reduction, at::ScalarType dtype) {
  if (reduction == "add") return at::scalar_tensor(0, dtype);
  if (reduction == "mul") return at::scalar_tensor(1, dtype);
  const bool is_max = reduction == "max";
  if (at::isFloatingType(dtype)) {
    const double infinity = std::numeric_limits<double>::infinity();
    return at::scalar_tensor(is_max ? -infinity : infinity, dtype);
  }
  if (dtype != at::kLong && dtype != at::kInt) throw NotTranslated("of this type, without the numbers that are there");
  using Long = std::numeric_limits<int64_t>;
  using Int = std::numeric_limits<int32_t>;
  const int64_t lowest = dtype == at::kLong ? Long::min() : Int::min(),
                most = dtype == at::kLong ? Long::max() : Int::max();
  return at::scalar_tensor(is_max ? lowest : most, dtype);
}

// The updates of each place combined, with the number that is there or without it. Places without updates keep theirs.
void give_scattered(OperatorCall& call, const Scattered& what, const std::string& name) {
  GraphBuilder& graph = call.graph();
  const at::ScalarType dtype = call.result().dtype;
  const std::string reduction = reduction_of(name);
  const bool with_self = call.flag("include_self");
  std::string x = call.in("self");
  const auto with_updates = [&](const std::string& updates) {
    Scattered other = what;
    other.updates = call.expanded(updates, what.sizes);
    return other;
  };
  if (!with_self) x = scattered(call, x, with_updates(graph.constant(identity_of(reduction, dtype))), "");
  x = scattered(call, x, what, reduction);
  if (name != "mean") return call.give(x);
  if (!at::isFloatingType(dtype)) throw NotTranslated("the mean of whole numbers");
  const std::string before = call.expanded(graph.number(with_self ? 1 : 0, dtype), call.value("self").sizes);
  const std::string counts = scattered(call, before, with_updates(graph.number(1, dtype)), "add");
  call.give(graph.add("Div", {x, graph.add("Max", {counts, graph.number(1, dtype)})}));
}

void scatter(OperatorCall& call) {
  const std::string reduction = call.has("reduce") ? reduction_of(call.text("reduce", "")) : "";
  call.give(scattered(call, call.in("self"), element_wise(call), reduction));
}

void scatter_add(OperatorCall& call) {
  call.give(scattered(call, call.in("self"), element_wise(call), "add"));
}

void scatter_reduce(OperatorCall& call) {
  give_scattered(call, element_wise(call), call.text("reduce", ""));
}

void index_reduce(OperatorCall& call) {
  give_scattered(call, row_wise(call, "source", call.value("source").sizes), call.text("reduce", ""));
}

void index_add(OperatorCall& call) {
  Scattered what = row_wise(call, "source", call.value("source").sizes);
  if (call.has("alpha") && call.real("alpha") != 1) {
    what.updates = call.graph().add("Mul", {what.updates, call.in("alpha", call.result().dtype)});
  }
  call.give(scattered(call, call.in("self"), what, "add"));
}

void index_copy(OperatorCall& call) {
  call.give(scattered(call, call.in("self"), row_wise(call, "source", call.value("source").sizes), ""));
}

void index_fill(OperatorCall& call) {
  BatchNumbers sizes = call.value("self").sizes;
  const BatchNumbers& index = call.value("index").sizes;
  if (!sizes.empty()) sizes[static_cast<size_t>(call.dimension("dim"))] = index.empty() ? BatchNumber{0, 1} : index[0];
  call.give(scattered(call, call.in("self"), row_wise(call, "value", sizes), ""));
}

// ---- bags of embeddings --------------------------------------------------------------------------------------------

// (n): the number of the bag of each index. A bag goes from its offset to the next one's.
std::string bag_of_each(OperatorCall& call, const BatchNumber& indices) {
  GraphBuilder& graph = call.graph();
  const BatchNumbers& bags = call.value("offsets").sizes;
  const std::string none = call.expanded(graph.whole_number(0, at::kLong), {indices + BatchNumber{0, 1}});
  const std::string offsets = call.cast_from(call.in("offsets"), call.dtype("offsets"), at::kLong);
  const std::string starts =
      graph.add("ScatterElements", {none, offsets, call.expanded(graph.whole_number(1, at::kLong), bags)},
                {{"axis", int64_t{0}}, {"reduction", std::string("add")}});
  const std::string begun = graph.add("CumSum", {starts, graph.whole_number(0, at::kLong)});
  const std::string of_indices = graph.add("Slice", {begun, graph.numbers({0}), graph.batch_numbers({indices})});
  return graph.add("Sub", {of_indices, graph.whole_number(1, at::kLong)});
}

// Sums, means or largest values of the rows of each bag; zeros for an empty one.
void embedding_bag(OperatorCall& call) {
  enum Mode : int64_t { kSumOfBag, kMeanOfBag, kMaxOfBag };
  GraphBuilder& graph = call.graph();
  const at::ScalarType dtype = call.result().dtype;
  const int64_t mode = call.whole_number("mode", kSumOfBag), padding = call.whole_number("padding_idx", -1);
  if (mode == kMaxOfBag && graph.opset() < 18) throw NotTranslated("of the largest needs --opset 18");
  const BatchNumber count = call.value("indices").sizes.at(0);
  const BatchNumbers sums = call.result().sizes, column{sums.at(0), BatchNumber{0, 1}};
  const std::string second = graph.numbers({1}), zero = graph.number(0, dtype);
  std::string rows = graph.add("Gather", {call.in("weight"), call.in("indices")}, {{"axis", int64_t{0}}});
  if (call.has("per_sample_weights")) {
    rows = graph.add("Mul", {rows, graph.add("Unsqueeze", {call.in("per_sample_weights", dtype), second})});
  }
  const double nothing = mode == kMaxOfBag ? -std::numeric_limits<double>::infinity() : 0;
  std::string counted = call.expanded(graph.number(1, dtype), {count, BatchNumber{0, 1}});
  if (padding >= 0) {
    const std::string is_padding = graph.add(
        "Unsqueeze",
        {graph.add("Equal", {call.in("indices", at::kLong), graph.whole_number(padding, at::kLong)}), second});
    rows = graph.add("Where", {is_padding, graph.number(nothing, dtype), rows});
    counted = graph.add("Where", {is_padding, zero, counted});
  }
  const std::string bags = graph.add("Unsqueeze", {bag_of_each(call, count), second});
  const auto of_bags = [&](const std::string& values, const BatchNumbers& sizes, double start, const char* reduction) {
    return graph.add("ScatterND", {call.expanded(graph.number(start, dtype), sizes), bags, values},
                     {{"reduction", std::string(reduction)}});
  };
  const std::string result = of_bags(rows, sums, nothing, mode == kMaxOfBag ? "max" : "add");
  if (mode == kSumOfBag) return call.give(result);
  const std::string counts = of_bags(counted, column, 0, "add");
  if (mode == kMeanOfBag)
    return call.give(graph.add("Div", {result, graph.add("Max", {counts, graph.number(1, dtype)})}));
  call.give(graph.add("Where", {graph.add("Equal", {counts, zero}), zero, result}));
}

}  // namespace

Translations scatter_translations() {
  return {{"scatter", scatter},
          {"scatter_add", scatter_add},
          {"scatter_reduce", scatter_reduce},
          {"index_reduce", index_reduce},
          {"index_add", index_add},
          {"index_copy", index_copy},
          {"index_fill", index_fill},
          {"_embedding_bag", embedding_bag},
          {"_embedding_bag_forward_only", embedding_bag}};
}

}  // namespace levin::onnx
