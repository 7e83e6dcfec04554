#include <algorithm>
#include <limits>

#include "levin/models/onnx/operators.h"

namespace levin::onnx {

namespace {

using Numbers = std::vector<int64_t>;

void same(OperatorCall& call) {
  call.give(call.cast_from(call.in("self"), call.dtype("self"), call.result().dtype));
}

// To the sizes that the result had, including the sizes given as -1.
void reshape(OperatorCall& call) {
  call.give(call.reshaped(call.in("self"), call.result().sizes));
}

// A view as a different type is a view of the bytes.
void view(OperatorCall& call) {
  if (call.dtype("self") != call.result().dtype) throw NotTranslated("as a different type");
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

void transpose(OperatorCall& call) {
  if (call.rank("self") == 0) return same(call);
  Numbers order = order_of(call.rank("self"));
  std::swap(order.at(static_cast<size_t>(call.dimension("dim0"))),
            order.at(static_cast<size_t>(call.dimension("dim1"))));
  call.give(permuted(call, order));
}

void reverse_order(OperatorCall& call) {
  if (call.rank("self") < 2) return same(call);
  Numbers order = order_of(call.rank("self"));
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

Translation triangle(int64_t upper) {
  return [upper](OperatorCall& call) {
    GraphBuilder& graph = call.graph();
    const at::ScalarType dtype = call.result().dtype;
    const bool is_bool = dtype == at::kBool;  // onnxruntime has it for numbers only
    const std::string x = is_bool ? graph.cast(call.in("self"), at::kLong) : call.in("self");
    const std::string part =
        graph.add("Trilu", {x, graph.whole_number(call.whole_number("diagonal", 0), at::kLong)}, {{"upper", upper}});
    call.give(is_bool ? graph.cast(part, dtype) : part);
  };
}

constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();

// Casts all to the result's type. PyTorch ignores empty tensors of one dimension next to tensors of any other shape.
std::vector<std::string> joined_inputs(OperatorCall& call) {
  std::vector<std::string> inputs;
  for (const int64_t id : call.list("tensors")) {
    const ProgramValue& value = call.value(id);
    if (value.sizes == BatchNumbers{BatchNumber{0, 0}} && call.result().sizes.size() != 1) continue;
    inputs.push_back(call.cast_from(call.in(id), value.dtype, call.result().dtype));
  }
  return inputs;
}

int64_t dimension_of_result(const OperatorCall& call) {
  const int64_t dim = call.whole_number("dim", 0);
  return dim < 0 ? dim + static_cast<int64_t>(call.result().sizes.size()) : dim;
}

void cat(OperatorCall& call) {
  call.give(call.graph().add("Concat", joined_inputs(call), {{"axis", dimension_of_result(call)}}));
}

void stack(OperatorCall& call) {
  const int64_t dim = dimension_of_result(call);
  std::vector<std::string> inputs;
  for (const std::string& input : joined_inputs(call)) {
    inputs.push_back(call.graph().add("Unsqueeze", {input, call.graph().numbers({dim})}));
  }
  call.give(call.graph().add("Concat", inputs, {{"axis", dim}}));
}

// ---- parts ---------------------------------------------------------------------------------------------------------

// An end after the last element, which may be given as any large number, stays at the end.
BatchNumber bound(const OperatorCall& call, const std::string& argument, const BatchNumber& otherwise) {
  if (!call.has(argument)) return otherwise;
  return call.batch_numbers(argument).at(0);
}

struct SliceBounds {
  int64_t dim, step;
  std::string start, end;
};

SliceBounds slice_bounds(OperatorCall& call) {
  const int64_t dim = call.has("dim") ? call.dimension("dim") : 0;
  const BatchNumber size = call.value("self").sizes.at(static_cast<size_t>(dim));
  const BatchNumber start = bound(call, "start", {0, 0});
  BatchNumber end = bound(call, "end", {0, kEnd});
  if (end == size) end = {0, kEnd};
  return {dim, call.whole_number("step", 1), call.graph().batch_numbers({start}), call.graph().batch_numbers({end})};
}

void slice(OperatorCall& call) {
  if (call.value("self").sizes == call.result().sizes) return call.give(call.in("self"));
  GraphBuilder& graph = call.graph();
  const SliceBounds bounds = slice_bounds(call);
  call.give(graph.add(
      "Slice", {call.in("self"), bounds.start, bounds.end, graph.numbers({bounds.dim}), graph.numbers({bounds.step})}));
}

void select(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const BatchNumber index = call.batch_numbers("index").at(0);
  call.give(graph.add("Gather", {call.in("self"), graph.batch_number(index)}, {{"axis", call.dimension("dim")}}));
}

// The results along a dimension, of the sizes that they had.
void split(OperatorCall& call) {
  const int64_t dim = call.has("dim") ? call.dimension("dim") : 0;
  BatchNumbers sizes;
  for (size_t k = 0; k < call.results(); ++k) sizes.push_back(call.result(k).sizes.at(static_cast<size_t>(dim)));
  const auto parts = call.graph().add_several(call.results(), "Split",
                                              {call.in("self"), call.graph().batch_numbers(sizes)}, {{"axis", dim}});
  for (size_t k = 0; k < parts.size(); ++k) call.give(parts[k], k);
}

void unbind(OperatorCall& call) {
  const int64_t dim = call.has("dim") ? call.dimension("dim") : 0;
  const std::string x = call.in("self");
  for (size_t k = 0; k < call.results(); ++k) {
    const std::string index = call.graph().whole_number(static_cast<int64_t>(k), at::kLong);
    call.give(call.graph().add("Gather", {x, index}, {{"axis", dim}}), k);
  }
}

// ---- parts that are replaced ---------------------------------------------------------------------------------------

// Everything before and after the part, and the part between them.
std::string with_part(OperatorCall& call, int64_t dim, const std::string& part, const BatchNumber& start,
                      const BatchNumber& end) {
  GraphBuilder& graph = call.graph();
  const std::string x = call.in("self"), axis = graph.numbers({dim});
  const BatchNumber size = call.value("self").sizes.at(static_cast<size_t>(dim));
  std::vector<std::string> pieces;
  if (start != BatchNumber{0, 0}) {
    pieces.push_back(graph.add("Slice", {x, graph.numbers({0}), graph.batch_numbers({start}), axis}));
  }
  pieces.push_back(part);
  if (end != size) {
    pieces.push_back(graph.add("Slice", {x, graph.batch_numbers({end}), graph.numbers({kEnd}), axis}));
  }
  return pieces.size() == 1 ? pieces[0] : graph.add("Concat", pieces, {{"axis", dim}});
}

// Counted from the start, where it is counted from the end.
BatchNumber from_start(const BatchNumber& place, const BatchNumber& size) {
  return place.is_negative() ? size + place : place;
}

// Between the start and the end, if it is known to be outside.
BatchNumber within(BatchNumber place, const BatchNumber& size) {
  if (!place.is_fixed() || !size.is_fixed()) return place;
  place.rest = std::clamp<int64_t>(place.rest, 0, size.rest);
  return place;
}

// The part is as long as src.
void slice_scatter(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const int64_t dim = call.has("dim") ? call.dimension("dim") : 0, step = call.whole_number("step", 1);
  const BatchNumber size = call.value("self").sizes.at(static_cast<size_t>(dim));
  const BatchNumbers& part = call.value("src").sizes;
  const BatchNumber length = part.at(static_cast<size_t>(dim));
  const BatchNumber start = within(from_start(bound(call, "start", {0, 0}), size), size);
  const std::string source = call.in("src", call.result().dtype);
  if (step == 1) return call.give(with_part(call, dim, source, start, start + length));
  BatchNumbers column(part.size(), BatchNumber{0, 1});
  column[static_cast<size_t>(dim)] = length;
  const std::string places = call.expanded(call.reshaped(graph.range(start, length, step), column), part);
  call.give(graph.add("ScatterElements", {call.in("self"), places, source}, {{"axis", dim}}));
}

void select_scatter(OperatorCall& call) {
  const int64_t dim = call.dimension("dim");
  const BatchNumber size = call.value("self").sizes.at(static_cast<size_t>(dim));
  const BatchNumber start = from_start(call.batch_numbers("index").at(0), size);
  const std::string part =
      call.graph().add("Unsqueeze", {call.in("src", call.result().dtype), call.graph().numbers({dim})});
  call.give(with_part(call, dim, part, start, start + BatchNumber{0, 1}));
}

// ---- orders --------------------------------------------------------------------------------------------------------

void flip(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const auto given = call.whole_numbers("dims");
  if (given.empty()) return call.give(call.in("self"));
  const auto dims = call.dimensions("dims");
  const auto all = [&](int64_t number) { return graph.numbers(std::vector<int64_t>(dims.size(), number)); };
  call.give(graph.add(
      "Slice", {call.in("self"), all(-1), all(std::numeric_limits<int64_t>::min()), graph.numbers(dims), all(-1)}));
}

// Along a size that is a value of the graph, ().
std::string rolled(GraphBuilder& graph, const std::string& x, int64_t shift, int64_t dim, const std::string& size) {
  const std::string zero = graph.whole_number(0, at::kLong), one = graph.whole_number(1, at::kLong);
  const std::string from =
      graph.add("Sub", {graph.add("Range", {zero, size, one}), graph.whole_number(shift, at::kLong)});
  return graph.add("Gather", {x, graph.add("Mod", {from, size})}, {{"axis", dim}});
}

void roll(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const auto shifts = call.whole_numbers("shifts"),
             dims = call.has("dims") ? call.whole_numbers("dims") : std::vector<int64_t>{};
  std::string x = call.in("self");
  if (dims.empty()) {  // of all elements in a row
    x = rolled(graph, graph.add("Reshape", {x, graph.numbers({-1})}), shifts.at(0), 0, graph.add("Size", {x}));
    return call.give(call.reshaped(x, call.result().sizes));
  }
  for (size_t k = 0; k < dims.size(); ++k) {
    const int64_t dim = dims[k] < 0 ? dims[k] + call.rank("self") : dims[k];
    const BatchNumber size = call.value("self").sizes.at(static_cast<size_t>(dim));
    if (!size.is_fixed()) {
      x = rolled(graph, x, shifts[k], dim, graph.batch_number(size));
      continue;
    }
    const int64_t moved = size.rest == 0 ? 0 : ((shifts[k] % size.rest) + size.rest) % size.rest;
    if (moved == 0) continue;
    const auto parts = graph.add_several(2, "Split", {x, graph.numbers({size.rest - moved, moved})}, {{"axis", dim}});
    x = graph.add("Concat", {parts[1], parts[0]}, {{"axis", dim}});
  }
  call.give(x);
}

// A tensor whose shape depends on the batch, full of one number; others are constants of the graph.
void full_of(OperatorCall& call, const std::string& number) {
  call.give(call.expanded(number, call.result().sizes));
}

Translation full_of(int64_t number) {
  return [number](OperatorCall& call) { full_of(call, call.graph().whole_number(number, call.result().dtype)); };
}

Translation full(const char* argument) {
  return [argument](OperatorCall& call) { full_of(call, call.in(argument, call.result().dtype)); };
}

void scalar_tensor(OperatorCall& call) {
  call.give(call.in("s", call.result().dtype));
}

void arange(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const at::ScalarType dtype = call.result().dtype;
  const std::string start = call.has("start") ? call.in("start", dtype) : graph.whole_number(0, dtype);
  const std::string step = call.has("step") ? call.in("step", dtype) : graph.whole_number(1, dtype);
  call.give(graph.add("Range", {start, call.in("end", dtype), step}));
}

}  // namespace

TranslationRows shape_translations() {
  return {{same, "contiguous clone detach alias lift_fresh lift to _to_copy type_as"},
          {view, "view"},
          {reshape, "_unsafe_view _reshape_alias reshape flatten unflatten"},
          {unsqueeze, "unsqueeze"},
          {squeeze, "squeeze"},
          {transpose, "transpose"},
          {reverse_order, "t numpy_T"},
          {permute, "permute"},
          {expand, "expand expand_as"},
          {repeat, "repeat"},
          {diagonal, "diagonal"},
          {copy, "copy"},
          {triangle(0), "tril"},
          {triangle(1), "triu"},
          {cat, "cat concat"},
          {stack, "stack"},
          {slice, "slice"},
          {select, "select"},
          {split, "split split_with_sizes chunk"},
          {unbind, "unbind"},
          {slice_scatter, "slice_scatter"},
          {select_scatter, "select_scatter"},
          {flip, "flip"},
          {roll, "roll"},
          {full_of(0), "zeros zeros_like new_zeros zero"},
          {full_of(1), "ones ones_like new_ones"},
          {full("fill_value"), "full full_like new_full"},
          {full("value"), "fill"},
          {scalar_tensor, "scalar_tensor"},
          {arange, "arange"}};
}

}  // namespace levin::onnx
