#include <optional>

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
  if (call.rank("self") == 0) throw NotTranslated("of a single number");
  call.give(call.graph().add("GatherElements", {call.in("self"), call.in("index")}, {{"axis", call.dimension("dim")}}));
}

// The indexed dimensions, which must follow one another.
struct Indexed {
  int64_t first = 0;
  std::vector<int64_t> indices = {};  // values
};

Indexed indexed(const OperatorCall& call) {
  Indexed result;
  bool ended = false;
  const auto& indices = call.list("indices");
  for (size_t k = 0; k < indices.size(); ++k) {
    if (indices[k] == kNoValue) {
      ended = !result.indices.empty();
      continue;
    }
    if (ended) throw NotTranslated("with a dimension between the indexed ones");
    const at::ScalarType dtype = call.value(indices[k]).dtype;
    if (dtype == at::kBool || dtype == at::kByte) {
      throw NotTranslated("by a mask, whose number of elements is not known; use where or masked_fill");
    }
    if (result.indices.empty()) result.first = static_cast<int64_t>(k);
    result.indices.push_back(indices[k]);
  }
  if (result.indices.empty()) throw NotTranslated("without indices");
  return result;
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
    return call.give(graph.add("Gather", {call.in("self"), call.in(at.indices[0])}, {{"axis", at.first}}));
  }
  if (at.first != 0) throw NotTranslated("by several tensors behind the first dimension");
  call.give(graph.add("GatherND", {call.in("self"), stacked_indices(call, at.indices)}));
}

void index_put(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const Indexed at = indexed(call);
  if (at.first != 0) throw NotTranslated("behind the first dimension");
  BatchNumbers sizes = broadcast_sizes(call, at.indices);
  const BatchNumbers& own = call.value("self").sizes;
  sizes.insert(sizes.end(), own.begin() + static_cast<int64_t>(at.indices.size()), own.end());
  std::string values = call.in("values", call.result().dtype);
  if (call.value("values").sizes != sizes) values = call.expanded(values, sizes);
  Attributes attributes;
  if (call.flag("accumulate")) attributes.emplace_back("reduction", std::string("add"));
  call.give(graph.add("ScatterND", {call.in("self"), stacked_indices(call, at.indices), values}, attributes));
}

// scatter(self, dim, index, src or value): only where index is as large as src.
void scatter_by(OperatorCall& call, const std::string& reduction) {
  GraphBuilder& graph = call.graph();
  const at::ScalarType dtype = call.result().dtype;
  const BatchNumbers& sizes = call.value("index").sizes;
  std::string source;
  if (call.is_tensor("src")) {
    if (call.value("src").sizes != sizes) throw NotTranslated("of a part of src");
    source = call.in("src", dtype);
  } else {
    source = call.expanded(call.in("value", dtype), sizes);
  }
  Attributes attributes{{"axis", call.dimension("dim")}};
  if (!reduction.empty()) attributes.emplace_back("reduction", reduction);
  call.give(graph.add("ScatterElements", {call.in("self"), call.in("index"), source}, attributes));
}

void scatter(OperatorCall& call) {
  if (call.has("reduce")) throw NotTranslated("with a reduction");
  scatter_by(call, "");
}

void scatter_add(OperatorCall& call) {
  scatter_by(call, "add");
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
  return {{"embedding", embedding}, {"index_select", index_select}, {"gather", gather},
          {"index", index},         {"_unsafe_index", index},       {"index_put", index_put},
          {"scatter", scatter},     {"scatter_add", scatter_add},   {"one_hot", one_hot}};
}

}  // namespace levin::onnx
