#include <algorithm>
#include <numeric>

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
  std::vector<int64_t> order(of_indices + at.others.size());
  std::iota(order.begin(), order.end(), 0);
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
  std::vector<int64_t> axes(static_cast<size_t>(behind));
  std::iota(axes.begin(), axes.end(), masked);
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

}  // namespace

Translations indexing_translations() {
  return {{"embedding", embedding},
          {"index_select", index_select},
          {"gather", gather},
          {"index", index},
          {"_unsafe_index", index},
          {"index_put", index_put},
          {"_index_put_impl", index_put},
          {"_unsafe_index_put", index_put},
          {"take", take},
          {"one_hot", one_hot}};
}

}  // namespace levin::onnx
