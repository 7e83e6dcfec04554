#include "levin/recompute/segment_names.h"

#include <fnmatch.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/options/value.h"

namespace levin {

namespace {

using torch::nn::Module;

// A submodule's children, in the order they were registered. Of a Sequential or a list these are its blocks.
struct Chain {
  std::string name;                     // "": the root
  std::vector<std::string> names = {};  // of the blocks, in full
  std::vector<Module*> blocks = {};
};

struct Tree {
  explicit Tree(const Module& root) : modules(root.named_modules("", /*include_self=*/false)), names(modules.keys()) {}

  torch::OrderedDict<std::string, std::shared_ptr<Module>> modules;
  std::vector<std::string> names;

  // The outermost matches of a pattern.
  [[nodiscard]] std::vector<std::string> matches(const std::string& pattern) const {
    std::vector<std::string> found;
    for (const std::string& name : names) {
      const bool inside = std::any_of(found.begin(), found.end(),
                                      [&](const std::string& outer) { return name.starts_with(outer + "."); });
      if (!inside && fnmatch(pattern.c_str(), name.c_str(), 0) == 0) found.push_back(name);
    }
    return found;
  }

  [[nodiscard]] Module& at(const std::string& name) const { return *modules[name]; }

  [[nodiscard]] static bool is_list(const Module& module) {
    return dynamic_cast<const torch::nn::SequentialImpl*>(&module) != nullptr ||
           dynamic_cast<const torch::nn::ModuleListImpl*>(&module) != nullptr;
  }

  [[nodiscard]] bool is_block(const std::string& name) const {
    const std::string above = parent_of(name);
    return !above.empty() && is_list(at(above));
  }

  // The children of a submodule, or of the root.
  [[nodiscard]] Chain chain(const std::string& name) const {
    Chain chain{name};
    for (const std::string& each : names) {
      if (parent_of(each) != name) continue;
      chain.names.push_back(each);
      chain.blocks.push_back(modules[each].get());
    }
    return chain;
  }

  static std::string parent_of(const std::string& name) {
    const size_t dot = name.rfind('.');
    return dot == std::string::npos ? "" : name.substr(0, dot);
  }
};

NamedSegment part_of(const Chain& chain, size_t from, size_t to) {
  const auto begin = static_cast<std::ptrdiff_t>(from);
  const auto end = static_cast<std::ptrdiff_t>(to);
  NamedSegment segment{chain.names[from], {chain.blocks.begin() + begin, chain.blocks.begin() + end}, true};
  if (to - from > 1) segment.name += ".." + chain.names[to - 1];
  return segment;
}

class Reading {
 public:
  Reading(const Module& root, const RecomputeOptions& options, std::string path)
      : tree_(root), options_(options), path_(std::move(path)) {}

  std::vector<NamedSegment> segments() {
    if (options_.segments && options_.modules.empty()) {
      problems_.add({}, join_path(path_, "segments"),
                    "there is nothing to cut. Name a Sequential or a list in modules.");
    }
    for (size_t k = 0; k < options_.modules.size(); ++k) read_module(options_.modules[k], entry("modules", k));
    read_checkpoints();
    check_overlaps();
    problems_.throw_if_any();
    return std::move(segments_);
  }

 private:
  [[nodiscard]] std::string entry(const char* field, size_t k) const {
    return join_path(path_, field) + "[" + std::to_string(k) + "]";
  }

  void unknown(const std::string& pattern, const std::string& here) {
    problems_.add({}, here,
                  "no submodule's name matches \"" + pattern + "\"." + did_you_mean(pattern, tree_.names) +
                      " Submodules: " + join(tree_.names) + ".");
  }

  void read_module(const std::string& word, const std::string& here) {
    if (const size_t dots = word.find(".."); dots != std::string::npos) {
      return read_range(word.substr(0, dots), word.substr(dots + 2), word, here);
    }
    const auto found = tree_.matches(word);
    if (found.empty()) return unknown(word, here);
    for (const std::string& name : found) options_.segments ? cut(name, here) : add_module(name, here);
  }

  void add_module(const std::string& name, const std::string& here) {
    Module& module = tree_.at(name);
    if (!Tree::is_list(module)) return add({name, {&module}, tree_.is_block(name)});
    const Chain chain = tree_.chain(name);
    if (chain.blocks.empty()) return problems_.add({}, here, name + " is an empty " + module.name() + ".");
    add(part_of(chain, 0, chain.blocks.size()));
  }

  void cut(const std::string& name, const std::string& here) {
    const int64_t parts = *options_.segments;
    const Chain chain = tree_.chain(name);
    const auto length = static_cast<int64_t>(chain.blocks.size());
    if (!Tree::is_list(tree_.at(name))) {
      return problems_.add(
          {}, here,
          name + " is a " + tree_.at(name).name() +
              ", and segments cuts a Sequential or a list of blocks. Name one, or leave segments out.");
    }
    if (parts > length) {
      return problems_.add({}, join_path(path_, "segments"),
                           name + " has " + count_of(length, "block") + ", too few for " + count_of(parts, "segment") +
                               ". Give 1 to " + std::to_string(length) + ".");
    }
    const int64_t size = length / parts;
    for (int64_t k = 0; k + 1 < parts; ++k) {
      add(part_of(chain, static_cast<size_t>(k * size), static_cast<size_t>((k + 1) * size)));
    }
  }

  void read_range(const std::string& first, const std::string& last, const std::string& word, const std::string& here) {
    for (const std::string& name : {first, last}) {
      if (!tree_.modules.contains(name)) return unknown(name, here);
    }
    if (options_.segments) {
      return problems_.add({}, here,
                           "a range is one segment, and segments cuts a whole Sequential or list: name " +
                               Tree::parent_of(first) + ", or leave segments out.");
    }
    const Chain chain = tree_.chain(Tree::parent_of(first));
    const auto from = std::find(chain.names.begin(), chain.names.end(), first) - chain.names.begin();
    const auto to = std::find(chain.names.begin(), chain.names.end(), last) - chain.names.begin();
    if (Tree::parent_of(first) != Tree::parent_of(last) || to < from) {
      return problems_.add({}, here,
                           word +
                               " is not a range: a range goes from one block of a Sequential or a list to a later "
                               "one of the same, as in layers.2..layers.5.");
    }
    add(part_of(chain, static_cast<size_t>(from), static_cast<size_t>(to) + 1));
  }

  void read_checkpoints() {
    std::map<std::string, std::set<size_t>> ends;  // by chain: the positions of its checkpoints
    for (size_t k = 0; k < options_.checkpoints.size(); ++k) {
      const std::string& word = options_.checkpoints[k];
      auto found = tree_.matches(word);
      if (found.empty()) found = tree_.matches("*." + word);
      if (found.empty()) unknown(word, entry("checkpoints", k));
      for (const std::string& name : found) {
        const std::string above = Tree::parent_of(name);
        const Chain chain = tree_.chain(above);
        ends[above].insert(
            static_cast<size_t>(std::find(chain.names.begin(), chain.names.end(), name) - chain.names.begin()));
      }
    }
    for (const auto& [name, places] : ends) {
      const Chain chain = tree_.chain(name);
      size_t from = 0;
      for (const size_t place : places) {
        add(part_of(chain, from, place + 1));
        from = place + 1;
      }
    }
  }

  void add(NamedSegment segment) {
    const bool known = std::any_of(segments_.begin(), segments_.end(),
                                   [&](const NamedSegment& other) { return other.modules == segment.modules; });
    if (!known) segments_.push_back(std::move(segment));
  }

  // One within the other is nesting.
  void check_overlaps() {
    for (size_t a = 0; a < segments_.size(); ++a) {
      for (size_t b = 0; b < a; ++b) {
        const std::set<Module*> one(segments_[a].modules.begin(), segments_[a].modules.end());
        const std::set<Module*> other(segments_[b].modules.begin(), segments_[b].modules.end());
        std::set<Module*> both;
        std::set_intersection(one.begin(), one.end(), other.begin(), other.end(), std::inserter(both, both.end()));
        if (both.empty() || both.size() == std::min(one.size(), other.size())) continue;
        problems_.add({}, path_,
                      segments_[b].name + " and " + segments_[a].name +
                          " share some blocks and not others. Let one end where the other begins.");
      }
    }
  }

  Tree tree_;
  const RecomputeOptions& options_;
  std::string path_;
  Problems problems_;
  std::vector<NamedSegment> segments_;
};

}  // namespace

std::vector<NamedSegment> named_segments(const Module& root, const RecomputeOptions& options, const std::string& path) {
  return Reading(root, options, path).segments();
}

}  // namespace levin
