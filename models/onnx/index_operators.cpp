#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <limits>

#include "levin/models/onnx/operators.h"

namespace levin::onnx {

namespace {

// Row by row, for any shape of indices.
void embedding(OperatorCall& call) {
  call.give(call.graph().add("Gather", {call.in("weight"), call.in("indices")}, {{"axis", int64_t{0}}}));
}

void index_select(OperatorCall& call) {
  call.give(call.graph().add("Gather", {call.in("self"), call.in("index")}, {{"axis", call.dimension("dim")}}));
}

void gather(OperatorCall& call) {
  call.give(call.graph().add("GatherElements", {call.in("self"), call.in("index")}, {{"axis", call.dimension("dim")}}));
}

bool is_mask(const ProgramValue& value) {
  return value.dtype == at::kBool || value.dtype == at::kByte;
}

// Which dimensions are indexed, and by what.
struct Indexed {
  std::vector<int64_t> dims = {};
  std::vector<int64_t> indices = {};  // values
  std::vector<int64_t> others = {};   // dimensions without an index

  // Where the result has the dimensions of the indices, instead of the indexed ones; in front if those do not follow
  // one another.
  [[nodiscard]] int64_t position() const {
    const bool are_together = dims.back() - dims.front() + 1 == static_cast<int64_t>(dims.size());
    return are_together ? dims.front() : 0;
  }
};

Indexed indexed(const OperatorCall& call) {
  Indexed result;
  const auto& indices = call.list("indices");
  for (int64_t k = 0; k < call.rank("self"); ++k) {
    const int64_t index = k < static_cast<int64_t>(indices.size()) ? indices[static_cast<size_t>(k)] : kNoValue;
    if (index == kNoValue) {
      result.others.push_back(k);
      continue;
    }
    if (is_mask(call.value(index))) {
      throw NotTranslated("by a mask, whose number of elements is not known; use where or masked_fill");
    }
    result.dims.push_back(k);
    result.indices.push_back(index);
  }
  if (result.indices.empty()) throw NotTranslated("without indices");
  return result;
}

std::string transposed(OperatorCall& call, const std::string& x, const std::vector<int64_t>& order) {
  if (std::is_sorted(order.begin(), order.end())) return x;
  return call.graph().add("Transpose", {x}, {{"perm", order}});
}

// The indexed dimensions before the others.
std::vector<int64_t> indexed_first(const Indexed& at) {
  std::vector<int64_t> order = at.dims;
  order.insert(order.end(), at.others.begin(), at.others.end());
  return order;
}

std::vector<int64_t> inverse(const std::vector<int64_t>& order) {
  std::vector<int64_t> result(order.size());
  for (size_t k = 0; k < order.size(); ++k) result[static_cast<size_t>(order[k])] = static_cast<int64_t>(k);
  return result;
}

// From the result's dimensions to (the indices' ones, the others).
std::vector<int64_t> result_order(const Indexed& at, size_t of_indices) {
  std::vector<int64_t> order = order_of(static_cast<int64_t>(of_indices) + std::ssize(at.others));
  const auto start = order.begin() + at.position();
  std::rotate(order.begin(), start, start + static_cast<int64_t>(of_indices));
  return order;
}

// The shape that all indices are broadcast to.
BatchNumbers broadcast_sizes(const OperatorCall& call, const std::vector<int64_t>& values) {
  BatchNumbers sizes;
  for (const int64_t id : values) {
    const BatchNumbers& own = call.value(id).sizes;
    if (own.size() > sizes.size()) sizes.insert(sizes.begin(), own.size() - sizes.size(), BatchNumber{0, 1});
    for (size_t k = 0; k < own.size(); ++k) {
      BatchNumber& size = sizes[sizes.size() - own.size() + k];
      if (size == BatchNumber{0, 1}) size = own[k];
    }
  }
  return sizes;
}

// (…, n): the n indices of each element, for GatherND and ScatterND.
std::string stacked_indices(OperatorCall& call, const std::vector<int64_t>& values) {
  GraphBuilder& graph = call.graph();
  const BatchNumbers sizes = broadcast_sizes(call, values);
  std::vector<std::string> columns;
  for (const int64_t id : values) {
    std::string index = call.cast_from(call.in(id), call.value(id).dtype, at::kLong);
    if (call.value(id).sizes != sizes) index = call.expanded(index, sizes);
    columns.push_back(graph.add("Unsqueeze", {index, graph.numbers({-1})}));
  }
  return columns.size() == 1 ? columns[0] : graph.add("Concat", columns, {{"axis", int64_t{-1}}});
}

void index(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const Indexed at = indexed(call);
  if (at.indices.size() == 1) {
    return call.give(graph.add("Gather", {call.in("self"), call.in(at.indices[0])}, {{"axis", at.dims[0]}}));
  }
  const std::string found =
      graph.add("GatherND", {transposed(call, call.in("self"), indexed_first(at)), stacked_indices(call, at.indices)});
  const size_t of_indices = broadcast_sizes(call, at.indices).size();
  call.give(transposed(call, found, inverse(result_order(at, of_indices))));
}

// x[mask] = values, if those do not depend on the number of elements that are written. False for other writes.
bool put_by_mask(OperatorCall& call) {
  const auto& indices = call.list("indices");
  const auto mask = std::find_if(indices.begin(), indices.end(), [](int64_t id) { return id != kNoValue; });
  const bool is_only =
      mask != indices.end() && std::all_of(mask + 1, indices.end(), [](int64_t id) { return id == kNoValue; });
  if (!is_only || !is_mask(call.value(*mask)) || call.flag("accumulate")) return false;
  const auto masked = static_cast<int64_t>(call.value(*mask).sizes.size());
  const int64_t behind = call.rank("self") - (mask - indices.begin()) - masked;
  const BatchNumbers& given = call.value("values").sizes;
  const bool is_one = std::all_of(given.begin(), given.end(), [](const BatchNumber& size) {
    return size == BatchNumber{0, 1};
  });
  if (!is_one && call.rank("values") > behind) return false;
  GraphBuilder& graph = call.graph();
  std::string where = call.cast_from(call.in(*mask), call.value(*mask).dtype, at::kBool);
  const std::vector<int64_t> axes = order_of(behind, masked);
  if (!axes.empty()) where = graph.add("Unsqueeze", {where, graph.numbers(axes)});
  call.give(graph.add("Where", {where, call.in("values", call.result().dtype), call.in("self")}));
  return true;
}

void index_put(OperatorCall& call) {
  if (put_by_mask(call)) return;
  GraphBuilder& graph = call.graph();
  const Indexed at = indexed(call);
  const BatchNumbers of_indices = broadcast_sizes(call, at.indices), &own = call.value("self").sizes;
  BatchNumbers sizes;
  for (const int64_t dim : at.others) sizes.push_back(own[static_cast<size_t>(dim)]);
  sizes.insert(sizes.begin() + at.position(), of_indices.begin(), of_indices.end());
  std::string values = call.in("values", call.result().dtype);
  if (call.value("values").sizes != sizes) values = call.expanded(values, sizes);
  values = transposed(call, values, result_order(at, of_indices.size()));
  Attributes attributes;
  if (call.flag("accumulate")) attributes.emplace_back("reduction", std::string("add"));
  const std::vector<int64_t> order = indexed_first(at);
  const std::string written = graph.add(
      "ScatterND", {transposed(call, call.in("self"), order), stacked_indices(call, at.indices), values}, attributes);
  call.give(transposed(call, written, inverse(order)));
}

// Of all elements in a row.
void take(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  call.give(graph.add("Gather", {graph.add("Reshape", {call.in("self"), graph.numbers({-1})}), call.in("index")},
                      {{"axis", int64_t{0}}}));
}

void one_hot(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const int64_t classes = call.whole_number("num_classes", -1);
  if (classes < 0) throw NotTranslated("without num_classes");
  const std::string off_and_on = graph.numbers({0, 1});
  call.give(graph.add("OneHot", {call.in("self"), graph.numbers({classes}), off_and_on}, {{"axis", int64_t{-1}}}));
}

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

TranslationRows index_translations() {
  return {{embedding, "embedding"},
          {index_select, "index_select"},
          {gather, "gather"},
          {index, "index _unsafe_index"},
          {index_put, "index_put _index_put_impl _unsafe_index_put"},
          {take, "take"},
          {one_hot, "one_hot"},
          {scatter, "scatter"},
          {scatter_add, "scatter_add"},
          {scatter_reduce, "scatter_reduce"},
          {index_reduce, "index_reduce"},
          {index_add, "index_add"},
          {index_copy, "index_copy"},
          {index_fill, "index_fill"},
          {embedding_bag, "_embedding_bag _embedding_bag_forward_only"}};
}

}  // namespace levin::onnx
