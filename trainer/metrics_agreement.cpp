// Ranks that have logged different names in an epoch: a rank without a batch of a loader has logged nothing for it.
#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/strategies/rank_collectives.h"
#include "levin/trainer/metrics.h"

namespace levin {

namespace {

// What a rank sends to the others: a line of its idle loaders, then one for each metric, "key<tab>description".
struct RankReport {
  std::vector<int64_t> idle_loaders = {};
  std::map<std::string, std::string> descriptions = {};  // by key
  std::vector<std::string> keys = {};                    // in its order
};

RankReport read_report(const std::string& text) {
  RankReport report;
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  std::istringstream idle(line);
  for (int64_t loader = 0; idle >> loader;) report.idle_loaders.push_back(loader);
  while (std::getline(lines, line)) {
    const size_t tab = line.find('\t');
    report.keys.push_back(line.substr(0, tab));
    report.descriptions[report.keys.back()] = line.substr(tab + 1);
  }
  return report;
}

struct Key {
  int hook = 0;
  int64_t loader = 0;
  std::string name = "";
};

Key read_key(const std::string& text) {
  Key key;
  std::istringstream in(text);
  in >> key.hook >> key.loader;
  in.get();  // the space before the name, which may begin with one
  std::getline(in, key.name);
  return key;
}

bool is_idle(const RankReport& report, const std::string& key) {
  return std::count(report.idle_loaders.begin(), report.idle_loaders.end(), read_key(key).loader) > 0;
}

[[noreturn]] void throw_different(RankCollectives& ranks, const std::string& own_names) {
  std::string seen;
  const auto texts = ranks.gather(own_names);
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    seen +=
        (rank > 0 ? "; rank " : "rank ") + std::to_string(rank) + ": " + (texts[rank].empty() ? "none" : texts[rank]);
  }
  throw Error("log: the ranks have logged different metrics in this epoch (" + seen +
              "). Log the same names on every rank that has a batch.");
}

}  // namespace

std::string MetricStore::key_of(const Slot& slot) {
  return std::to_string(static_cast<int>(slot.hook)) + ' ' + std::to_string(slot.dataloader_idx) + ' ' + slot.name;
}

std::string MetricStore::names_of(const std::vector<Shared>& shared, bool on_step) {
  std::string names;
  for (const Shared& s : shared) names += (names.empty() ? "" : ", ") + full_name(*s.slot, on_step, false);
  return names;
}

void MetricStore::agree(RankCollectives& ranks, std::vector<Shared>& shared, bool on_step,
                        const std::vector<int64_t>& idle_loaders) {
  std::string own;
  for (const int64_t loader : idle_loaders) own += std::to_string(loader) + ' ';
  for (const Shared& s : shared) own += '\n' + key_of(*s.slot) + '\t' + description_of(s);
  std::vector<RankReport> reports;
  for (const std::string& text : ranks.gather(own)) reports.push_back(read_report(text));

  std::vector<std::string> keys;  // in the order in which rank 0 has them, then rank 1, …
  std::map<std::string, std::string> descriptions;
  for (const RankReport& rank : reports) {
    for (const std::string& key : rank.keys) {
      if (descriptions.insert(*rank.descriptions.find(key)).second) keys.push_back(key);
    }
  }
  std::vector<std::vector<bool>> lacking;
  for (const std::string& key : keys) {
    std::vector<bool>& lacks = lacking.emplace_back();
    for (const RankReport& rank : reports) {
      lacks.push_back(rank.descriptions.count(key) == 0);
      if (lacks.back() && !is_idle(rank, key)) throw_different(ranks, names_of(shared, on_step));
    }
  }
  std::vector<std::pair<size_t, size_t>> places;  // of the slot, which moves while others are made; and its states
  for (const std::string& key : keys) places.push_back(place_for(key, descriptions[key]));
  shared.clear();
  for (size_t k = 0; k < keys.size(); ++k) {
    const bool all_have = std::count(lacking[k].begin(), lacking[k].end(), true) == 0;
    shared.push_back({&slots_[places[k].first], places[k].second, all_have ? std::vector<bool>() : lacking[k]});
  }
}

std::string MetricStore::description_of(const Shared& shared) {
  const Slot& s = *shared.slot;
  std::ostringstream text;
  text << s.on_step << ' ' << s.on_epoch << ' ' << s.prog_bar << ' ' << s.logger << ' ' << s.add_suffix << ' '
       << static_cast<int>(s.reduce) << ' ' << s.sync_dist << ' ' << s.is_object << ' ' << shared.states;
  return text.str();
}

// The index of that slot, made as another rank's if this rank has none, and how many states its metric has.
std::pair<size_t, size_t> MetricStore::place_for(const std::string& key, const std::string& description) {
  const Key read = read_key(key);
  Slot s{static_cast<Hook>(read.hook), read.name, read.loader, false, false, false, false, false, ReduceFx::mean};
  int reduce = 0;
  size_t states = 0;
  std::istringstream(description) >> s.on_step >> s.on_epoch >> s.prog_bar >> s.logger >> s.add_suffix >> reduce >>
      s.sync_dist >> s.is_object >> states;
  s.reduce = static_cast<ReduceFx>(reduce);
  const std::vector<size_t>& all = by_name_[read.name];
  const auto index = std::find_if(all.begin(), all.end(), [&](size_t k) { return key_of(slots_[k]) == key; });
  const size_t k = index == all.end() ? slots_.size() : *index;
  Slot& found = index == all.end() ? add_slot(s) : slots_[k];
  found.is_object = s.is_object;
  found.used = true;
  return {k, states};
}

}  // namespace levin
