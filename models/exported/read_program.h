// models/model.json of a .pt2 file, as torch.export.save of PyTorch 2.9 and later writes it. Internal.
#pragma once

#include <string>
#include <unordered_map>

#include "levin/models/exported/graph.h"
#include "levin/models/exported/json_view.h"

namespace levin::exported {

/// Throws Error with the place in the JSON where it is not as the export schema says.
[[nodiscard]] Program read_program(const JsonView& json);

// The arguments of a graph in the JSON of torch.export.

/// The names of a graph that have been defined so far.
class Names {
 public:
  explicit Names(Graph& graph) : graph_(&graph) {}
  /// Throws Error if the name is taken.
  size_t define(const JsonView& where, const std::string& name, ValueType type);
  /// Throws Error if nothing before has defined it, or as something else.
  [[nodiscard]] size_t use(const JsonView& where, const std::string& name, ValueType type) const;

 private:
  Graph* graph_;
  std::unordered_map<std::string, size_t> index_ = {};
};

/// An argument that uses names. Throws Error.
[[nodiscard]] Argument read_argument(const JsonView& json, const Names& names);
/// A result of a node or an input of a graph, which defines names. Throws Error.
[[nodiscard]] Argument read_definition(const JsonView& json, Names& names);
/// The graph of a program or of a higher-order operator. Throws Error.
[[nodiscard]] Graph read_graph(const JsonView& json);

}  // namespace levin::exported
