#include "levin/strategies/process/place.h"

#include <algorithm>
#include <fstream>

#include "levin/core/this_process.h"

namespace levin {

std::string this_machine() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return host_name() + " " + boot;
}

World place_among(World own, const std::vector<std::string>& machines) {
  std::vector<std::string> nodes;
  const std::string& mine = machines.at(static_cast<size_t>(own.rank));
  own.local_rank = own.local_size = 0;
  for (size_t rank = 0; rank < machines.size(); ++rank) {
    if (machines[rank] == mine) {
      own.local_rank += static_cast<int64_t>(rank) < own.rank;
      ++own.local_size;
    }
    if (std::find(nodes.begin(), nodes.end(), machines[rank]) == nodes.end()) nodes.push_back(machines[rank]);
  }
  own.node_rank = std::find(nodes.begin(), nodes.end(), mine) - nodes.begin();
  own.num_nodes = static_cast<int64_t>(nodes.size());
  own.place_is_known = true;
  return own;
}

}  // namespace levin
