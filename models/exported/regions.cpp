#include "levin/models/exported/regions.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <set>
#include <utility>

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

  /// Regions inside one of `module`, with those of lists around their blocks.
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
  constexpr std::ptrdiff_t kDeepest = 200;
  constexpr size_t kLongest = 1000;
  return !name.empty() && name.size() <= kLongest && name.find("..") == std::string::npos && !name.starts_with('.') &&
         !name.ends_with('.') && std::count(name.begin(), name.end(), '.') < kDeepest &&
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

}  // namespace levin::exported
