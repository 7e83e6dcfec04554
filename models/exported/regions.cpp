#include "levin/models/exported/regions.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <set>
#include <typeinfo>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/tensors.h"

namespace levin::exported {

namespace {

using Regions = std::vector<Region>;

// Opens and closes calls of modules as the operators go by.
class Reader {
 public:
  Regions read(const BoundGraph& graph) {
    open_.push_back({"", {}});
    for (size_t k = 0; k < graph.calls.size(); ++k) {
      const auto& stack = graph.calls[k].modules;
      if (stack.empty()) continue;
      size_t same = 0;
      while (same + 1 < open_.size() && same < stack.size() && open_[same + 1].key == stack[same].key) ++same;
      close_to(same + 1);
      for (size_t level = same; level < stack.size(); ++level)
        open_.push_back({stack[level].key, {stack[level].name, k}});
      for (auto call = open_.begin() + 1; call != open_.end(); ++call) call->region.end = k + 1;
    }
    close_to(1);
    return std::move(open_[0].region.inside.regions);
  }

 private:
  struct Open {
    std::string key;
    Region region;
  };

  void close_to(size_t depth) {
    while (open_.size() > depth) {
      Region region = std::move(open_.back().region);
      open_.pop_back();
      Regions& around = open_.back().region.inside.regions;
      if (is_module_name(region.module)) {
        around.push_back(std::move(region));
      } else {  // the whole model, or a module that has no name here
        std::move(region.inside.regions.begin(), region.inside.regions.end(), std::back_inserter(around));
      }
    }
  }

  std::vector<Open> open_ = {};
};

// Modules that are not called and hold modules that are: Python's lists.
class Lists {
 public:
  explicit Lists(const Regions& regions) { note(regions); }

  /// The regions inside a region of `module`, with the lists' regions around their blocks.
  Regions grouped(Regions regions, const std::string& module) const {
    std::map<std::string, std::pair<size_t, size_t>> spans;  // of lists: the first and the last region
    for (size_t k = 0; k < regions.size(); ++k) {
      const std::string list = list_of(regions[k].module, module);
      if (!list.empty()) spans.emplace(list, std::pair(k, k)).first->second.second = k;
    }
    Regions result;
    for (size_t k = 0; k < regions.size();) {
      const std::string list = list_of(regions[k].module, module);
      const bool begins = !list.empty() && spans[list].first == k;
      const size_t last = begins ? spans[list].second : k;
      const auto first = regions.begin() + static_cast<std::ptrdiff_t>(k);
      if (begins) {
        Region region{list, first->begin, regions[last].end};
        std::move(first, regions.begin() + static_cast<std::ptrdiff_t>(last) + 1,
                  std::back_inserter(region.inside.regions));
        region.inside.regions = grouped(std::move(region.inside.regions), list);
        result.push_back(std::move(region));
      } else {
        first->inside.regions = grouped(std::move(first->inside.regions), first->module);
        result.push_back(std::move(*first));
      }
      k = last + 1;
    }
    return result;
  }

 private:
  void note(const Regions& regions) {
    for (const Region& region : regions) {
      called_.insert(region.module);
      note(region.inside.regions);
    }
  }

  // "h" of "h.0" within "", unless "h" is called itself.
  [[nodiscard]] std::string list_of(const std::string& name, const std::string& module) const {
    const std::string prefix = module.empty() ? "" : module + ".";
    if (!name.starts_with(prefix)) return "";
    const size_t dot = name.find('.', prefix.size());
    if (dot == std::string::npos) return "";
    std::string list = name.substr(0, dot);
    return called_.contains(list) ? "" : list;
  }

  std::set<std::string> called_ = {};
};

using c10::IValue;

template <class Use>
void each_use(const BoundCall& call, const Use& use) {
  for (const FilledArgument& filled : call.filled) {
    if (filled.items.empty()) use(filled.value, filled.position);
    for (const Argument& item : filled.items) {
      if (item.kind == Argument::Kind::value) use(item.value, filled.position);
    }
  }
}

template <class Define>
void each_result(const BoundCall& call, const Define& define) {
  for (const Argument& output : call.outputs) {
    if (output.kind == Argument::Kind::value) define(output.value);
    for (const Argument& item : output.items) {
      if (item.kind == Argument::Kind::value) define(item.value);
    }
  }
}

// Whether an operator changes an argument. Batch norms change running statistics that their schemas do not mark.
bool writes(const BoundCall& call, size_t position) {
  if (!call.op || position >= call.op->schema().arguments().size()) return false;
  const c10::Argument& argument = call.op->schema().arguments()[position];
  const auto* alias = argument.alias_info();
  if (alias != nullptr && alias->isWrite()) return true;
  return call.mode && (argument.name() == "running_mean" || argument.name() == "running_var");
}

std::vector<int64_t> versions_of(const TensorList& tensors) {
  std::vector<int64_t> versions;
  for (const at::Tensor& tensor : tensors) {
    versions.push_back(tensor.defined() && !tensor.is_inference() ? tensor._version() : 0);
  }
  return versions;
}

bool same_kinds(const CallActions::List& one, const CallActions::List& other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(), [](const auto& a, const auto& b) {
    const CallAction &first = *a, &second = *b;
    return typeid(first) == typeid(second);
  });
}

}  // namespace

std::vector<std::string> region_modules(const std::vector<Region>& regions) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  const std::function<void(const Regions&)> collect = [&](const Regions& list) {
    for (const Region& region : list) {
      if (seen.insert(region.module).second) names.push_back(region.module);
      collect(region.inside.regions);
    }
  };
  collect(regions);
  return names;
}

RegionList with_modules(std::vector<Region> regions,
                        const std::function<const torch::nn::Module*(const std::string&)>& find) {
  RegionList list{std::move(regions), {}};
  std::map<std::string, size_t> chains;  // by the parent's name
  for (size_t k = 0; k < list.regions.size(); ++k) {
    Region& region = list.regions[k];
    region.object = find(region.module);
    region.chain = chains.emplace(parent_name(region.module), list.chains.size()).first->second;
    if (region.chain == list.chains.size()) list.chains.emplace_back();
    RegionChain& chain = list.chains[region.chain];
    region.place = chain.blocks.size();
    chain.blocks.push_back(region.object);
    chain.places.push_back(k);
    region.inside = with_modules(std::move(region.inside.regions), find);
  }
  return list;
}

bool is_module_name(const std::string& name) {
  constexpr std::ptrdiff_t kMaxDepth = 200;
  constexpr size_t kMaxNameLength = 1000;
  return !name.empty() && name.size() <= kMaxNameLength && name.find("..") == std::string::npos &&
         !name.starts_with('.') && !name.ends_with('.') && std::count(name.begin(), name.end(), '.') < kMaxDepth &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; });
}

std::string parent_name(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

std::vector<Region> regions_of(const BoundGraph& graph) {
  Regions regions = Reader().read(graph);
  const Lists lists(regions);
  return lists.grouped(std::move(regions), "");
}

// What passes between a span and the rest of the graph, as values.
struct RegionRuns::Border {
  std::vector<size_t> inputs = {};
  std::vector<size_t> weights = {};  // of the span's own modules
  std::vector<size_t> outputs = {};
  std::vector<size_t> released = {};  // inputs that nothing uses afterwards
  std::string problem = {};           // why it cannot be run by itself
};

// One call of a span. It holds no tensors, because it is kept until backward.
struct RegionRuns::Call {
  RunOptions options;
  std::vector<size_t> tensors = {};                     // the inputs that are tensors, in their order
  std::vector<std::pair<size_t, IValue>> numbers = {};  // the others
  std::vector<const at::TensorImpl*> callers = {};      // the caller's own inputs, to compare
  bool is_first = true;                                 // the forward pass is running, for the first time
  std::vector<size_t> results = {};                     // of that pass: the outputs that are tensors
  std::vector<std::pair<size_t, IValue>> other_results = {};
};

std::string RegionRuns::Span::name() const {
  return modules.size() == 1 ? modules[0] : modules.front() + ".." + modules.back();
}

RegionRuns::RegionRuns(const BoundGraph& graph, RegionList regions, std::map<size_t, HeldTensor> held)
    : graph_(graph),
      regions_(std::move(regions)),
      held_(std::move(held)),
      defined_(graph.values, SIZE_MAX),
      last_(graph.values, 0) {
  for (size_t k = 0; k < graph.calls.size(); ++k) {
    each_result(graph.calls[k], [&](size_t value) { defined_[value] = last_[value] = k; });
    each_use(graph.calls[k], [&](size_t value, size_t) { last_[value] = k; });
  }
  for (const Argument& output : graph.outputs) {
    if (output.kind == Argument::Kind::value) last_[output.value] = SIZE_MAX;
    for (const Argument& item : output.items) {
      if (item.kind == Argument::Kind::value) last_[item.value] = SIZE_MAX;
    }
  }
}

std::vector<IValue> RegionRuns::run(std::vector<IValue> inputs, const RunOptions& options) const {
  Values values = values_of(graph_, std::move(inputs));
  walk({&regions_, 0, regions_.regions.size(), 0, graph_.calls.size()}, values, options);
  return outputs_of(graph_, values);
}

RegionRuns::Acting RegionRuns::region_at(const Span& span, size_t place) const {
  const Region& region = span.list->regions[place];
  const Span own{&region.inside, 0, region.inside.regions.size(), region.begin, region.end, {region.module}};
  if (region.object == nullptr) return {own, nullptr};
  const RegionChain& chain = span.list->chains[region.chain];
  const bool inside = span.range != nullptr && span.chain == region.chain;
  if (auto range = CallActions::range_at(chain.blocks, region.place, inside ? span.range.get() : nullptr)) {
    const size_t last = chain.places[region.place + range->blocks.size() - 1];
    if (last < span.to) {
      Span blocks{span.list, place, last + 1, region.begin, span.list->regions[last].end, {}, range, region.chain};
      for (size_t k = 0; k < range->blocks.size(); ++k) {
        blocks.modules.push_back(span.list->regions[chain.places[region.place + k]].module);
      }
      return {std::move(blocks), &range->actions};
    }
  }
  return {own, CallActions::of(region.object)};
}

// Whether the results of one region are used by the next alone, which can take them from where they are.
bool RegionRuns::is_chain(const Acting& first, const Acting& second) const {
  if (first.actions == nullptr || second.actions == nullptr || first.span.end != second.span.begin) return false;
  if (!same_kinds(*first.actions, *second.actions)) return false;
  const auto border = border_of(first.span);
  return std::all_of(border->outputs.begin(), border->outputs.end(),
                     [&](size_t value) { return last_[value] < second.span.end; });
}

void RegionRuns::walk(const Span& span, Values& values, const RunOptions& options) const {
  size_t next = span.begin;
  bool continues = false;
  for (size_t k = span.from; k < span.to;) {
    const Acting acting = region_at(span, k);
    k = acting.span.list == span.list ? acting.span.to : k + 1;
    if (acting.actions == nullptr && acting.span.list->regions.empty()) continue;
    run_calls(graph_, next, acting.span.begin, values, options);
    next = acting.span.end;
    if (acting.actions == nullptr) {
      walk(acting.span, values, options);
      continue;
    }
    const bool ends = k >= span.to || !is_chain(acting, region_at(span, k));
    act(acting, {!continues, ends}, values, options);
    continues = !ends;
  }
  run_calls(graph_, next, span.end, values, options);
}

void RegionRuns::act(const Acting& acting, ChainPosition place, Values& outer, const RunOptions& options) const {
  const auto border = border_of(acting.span);
  if (!border->problem.empty()) throw Error(border->problem);
  const auto call = std::make_shared<Call>(Call{options});
  TensorList inputs;
  for (const size_t value : border->inputs) {
    if (!outer[value].isTensor()) {
      call->numbers.emplace_back(value, outer[value]);
      continue;
    }
    call->tensors.push_back(value);
    inputs.push_back(outer[value].toTensor());
    call->callers.push_back(inputs.back().unsafeGetTensorImpl());
  }
  const ModuleForward forward = [this, span = acting.span, border, call](const TensorList& given,
                                                                         torch::nn::Module* instead) {
    if (instead != nullptr) {
      throw ConfigError(span.name() + " of an exported program cannot be computed by replicas: give it one device.");
    }
    return run_alone(span, *border, *call, given);
  };
  TensorList outputs = CallActions::run(*acting.actions, forward, inputs, place);
  call->is_first = false;
  for (const size_t value : border->released) outer[value] = IValue();
  for (size_t k = 0; k < call->results.size(); ++k) outer[call->results[k]] = std::move(outputs.at(k));
  for (auto& [value, result] : std::exchange(call->other_results, {})) outer[value] = std::move(result);
}

TensorList RegionRuns::run_alone(const Span& span, const Border& border, Call& call, const TensorList& given) const {
  Values values(graph_.values);
  RunOptions options = call.options;
  bool has_device = false;
  const auto use = [&](const at::Tensor& tensor) {
    if (!has_device && tensor.defined()) options.device = tensor.device();
    has_device = has_device || tensor.defined();
  };
  for (size_t k = 0; k < call.tensors.size(); ++k) {
    values[call.tensors[k]] = given.at(k);
    use(given[k]);
  }
  for (const auto& [value, number] : call.numbers) values[value] = number;
  for (const size_t value : border.weights) {
    values[value] = *held_.at(value).tensor;
    use(*held_.at(value).tensor);
  }
  const auto versions = versions_of(given);
  walk(span, values, options);
  check_unchanged(span, call, given, versions);
  if (call.is_first) {
    call.results.clear();
    call.other_results.clear();
  }
  TensorList outputs;
  for (const size_t value : border.outputs) {
    if (values[value].isTensor()) {
      outputs.push_back(values[value].toTensor());
      if (call.is_first) call.results.push_back(value);
    } else if (call.is_first) {
      call.other_results.emplace_back(value, values[value]);
    }
  }
  return outputs;
}

// A change of a copy would be lost.
void RegionRuns::check_unchanged(const Span& span, const Call& call, const TensorList& given,
                                 const std::vector<int64_t>& versions) const {
  if (!call.is_first) return;
  const auto now = versions_of(given);
  for (size_t k = 0; k < now.size(); ++k) {
    if (now[k] == versions[k] || given[k].unsafeGetTensorImpl() == call.callers[k]) continue;
    const size_t made = defined_[call.tensors[k]];
    throw Error(span.name() + " of the exported program has changed its input, of shape " +
                levin::shape_text(given[k].sizes()) + ", in place (" +
                (made == SIZE_MAX ? "an input of the program" : "the result of " + graph_.calls[made].name) +
                "), and here it has a copy of it on another device. Place the module around both, or export the model "
                "with the operation that is not in place.");
  }
}

std::shared_ptr<const RegionRuns::Border> RegionRuns::border_of(const Span& span) const {
  const auto key = std::tuple(span.begin, span.end, join(span.modules));
  const std::lock_guard lock(mutex_);
  auto& border = borders_[key];
  if (border == nullptr) border = make_border(span);
  return border;
}

bool RegionRuns::is_own(size_t value, const Span& span) const {
  const auto found = held_.find(value);
  return found != held_.end() && found->second.is_registered &&
         std::any_of(span.modules.begin(), span.modules.end(),
                     [&](const std::string& module) { return found->second.name.starts_with(module + "."); });
}

std::shared_ptr<const RegionRuns::Border> RegionRuns::make_border(const Span& span) const {
  auto border = std::make_shared<Border>();
  const auto is_inside = [&](size_t call) { return call >= span.begin && call < span.end; };
  std::set<size_t> seen;
  for (size_t k = span.begin; k < span.end; ++k) {
    const BoundCall& call = graph_.calls[k];
    each_use(call, [&](size_t value, size_t position) {
      if (is_inside(defined_[value])) return;
      const bool own = is_own(value, span);
      if (!own && held_.contains(value) && writes(call, position) && border->problem.empty()) {
        border->problem = span.name() + " of the exported program changes " + held_.at(value).name + " in place (" +
                          call.name +
                          "), which no submodule within it saves, so that it can be neither computed again nor on "
                          "another device. Name the module around both, or others.";
      }
      if (!seen.insert(value).second) return;
      (own ? border->weights : border->inputs).push_back(value);
      if (!own && is_inside(last_[value])) border->released.push_back(value);
    });
    each_result(call, [&](size_t value) {
      if (last_[value] >= span.end) border->outputs.push_back(value);
    });
  }
  return border;
}

}  // namespace levin::exported
