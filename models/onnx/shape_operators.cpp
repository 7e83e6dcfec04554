#include <numeric>

#include "levin/models/onnx/operators.h"

namespace levin::onnx {

namespace {

using Numbers = std::vector<int64_t>;

void same(OperatorCall& call) {
  call.give(call.cast_from(call.in("self"), call.dtype("self"), call.result().dtype));
}

// To the sizes that the result had, whatever -1 stood for.
void reshape(OperatorCall& call) {
  call.give(call.reshaped(call.in("self"), call.result().sizes));
}

// A view as another type is one of the bytes.
void view(OperatorCall& call) {
  if (call.dtype("self") != call.result().dtype) throw NotTranslated("as another type");
  reshape(call);
}

void unsqueeze(OperatorCall& call) {
  int64_t dim = call.whole_number("dim");
  if (dim < 0) dim += call.rank("self") + 1;
  call.give(call.graph().add("Unsqueeze", {call.in("self"), call.graph().numbers({dim})}));
}

// The dimensions that went: of those asked for, the ones of size 1.
void squeeze(OperatorCall& call) {
  const BatchNumbers& sizes = call.value("self").sizes;
  Numbers gone;
  for (const int64_t dim : call.dimensions("dim")) {
    if (sizes.empty() || sizes.at(static_cast<size_t>(dim)) != BatchNumber{0, 1}) continue;
    gone.push_back(dim);
  }
  if (gone.empty()) return same(call);
  call.give(call.graph().add("Squeeze", {call.in("self"), call.graph().numbers(gone)}));
}

std::string permuted(OperatorCall& call, const Numbers& order) {
  return call.graph().add("Transpose", {call.in("self")}, {{"perm", order}});
}

Numbers unchanged_order(const OperatorCall& call) {
  Numbers order(static_cast<size_t>(call.rank("self")));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

void transpose(OperatorCall& call) {
  if (call.rank("self") == 0) return same(call);
  Numbers order = unchanged_order(call);
  std::swap(order.at(static_cast<size_t>(call.dimension("dim0"))),
            order.at(static_cast<size_t>(call.dimension("dim1"))));
  call.give(permuted(call, order));
}

void reverse_order(OperatorCall& call) {
  if (call.rank("self") < 2) return same(call);
  Numbers order = unchanged_order(call);
  call.give(permuted(call, {order.rbegin(), order.rend()}));
}

void permute(OperatorCall& call) {
  Numbers order = call.whole_numbers("dims");
  for (int64_t& dim : order) dim += dim < 0 ? call.rank("self") : 0;
  call.give(order.empty() ? call.in("self") : permuted(call, order));
}

void expand(OperatorCall& call) {
  if (call.value("self").sizes == call.result().sizes) return same(call);
  call.give(call.expanded(call.in("self"), call.result().sizes));
}

// The elements whose two places are the same, but for an offset, as the last dimension.
void diagonal(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const int64_t dim1 = call.dimension("dim1"), dim2 = call.dimension("dim2"), offset = call.whole_number("offset", 0);
  const BatchNumbers& sizes = call.value("self").sizes;
  const BatchNumber length = call.result().sizes.back();
  const int64_t columns = call.fixed_size("self", dim2);
  Numbers order;
  for (int64_t k = 0; k < call.rank("self"); ++k) {
    if (k != dim1 && k != dim2) order.push_back(k);
  }
  BatchNumbers flat(call.result().sizes.begin(), call.result().sizes.end() - 1);
  flat.push_back(sizes.at(static_cast<size_t>(dim1)) * columns);
  order.insert(order.end(), {dim1, dim2});
  const int64_t first = offset < 0 ? -offset * columns : offset;
  call.give(graph.add("Gather",
                      {call.reshaped(permuted(call, order), flat), graph.range({0, first}, length, columns + 1)},
                      {{"axis", static_cast<int64_t>(flat.size()) - 1}}));
}

// Tile takes as many repetitions as the tensor has dimensions; PyTorch takes more.
void repeat(OperatorCall& call) {
  const BatchNumbers& repeats = call.batch_numbers("repeats");
  BatchNumbers sizes = call.value("self").sizes;
  std::string x = call.in("self");
  if (repeats.size() > sizes.size()) {
    sizes.insert(sizes.begin(), repeats.size() - sizes.size(), BatchNumber{0, 1});
    x = call.reshaped(x, sizes);
  }
  call.give(call.graph().add("Tile", {x, call.graph().batch_numbers(repeats)}));
}

// copy_(self, src): what is written, in the shape and type of self.
void copy(OperatorCall& call) {
  const at::ScalarType dtype = call.result().dtype;
  std::string x = call.cast_from(call.in("src"), call.dtype("src"), dtype);
  if (call.value("src").sizes != call.result().sizes) x = call.expanded(x, call.result().sizes);
  call.give(x);
}

template <const char* kUpper>
void triangle(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const at::ScalarType dtype = call.result().dtype;
  const bool is_bool = dtype == at::kBool;  // onnxruntime has it for numbers only
  const std::string x = is_bool ? graph.cast(call.in("self"), at::kLong) : call.in("self");
  const std::string part = graph.add("Trilu", {x, graph.whole_number(call.whole_number("diagonal", 0), at::kLong)},
                                     {{"upper", int64_t{kUpper[0] == 'u' ? 1 : 0}}});
  call.give(is_bool ? graph.cast(part, dtype) : part);
}

constexpr char kLowerPart[] = "lower", kUpperPart[] = "upper";

}  // namespace

Translations shape_translations() {
  return {{"contiguous", same},
          {"clone", same},
          {"detach", same},
          {"alias", same},
          {"lift_fresh", same},
          {"lift", same},
          {"to", same},
          {"_to_copy", same},
          {"type_as", same},
          {"view", view},
          {"_unsafe_view", reshape},
          {"_reshape_alias", reshape},
          {"reshape", reshape},
          {"flatten", reshape},
          {"unflatten", reshape},
          {"unsqueeze", unsqueeze},
          {"squeeze", squeeze},
          {"transpose", transpose},
          {"t", reverse_order},
          {"numpy_T", reverse_order},
          {"permute", permute},
          {"expand", expand},
          {"expand_as", expand},
          {"repeat", repeat},
          {"diagonal", diagonal},
          {"copy", copy},
          {"tril", triangle<kLowerPart>},
          {"triu", triangle<kUpperPart>}};
}

}  // namespace levin::onnx
