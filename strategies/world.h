// A process's place among all processes that train together.
#pragma once

#include <cstdint>
#include <string>

namespace levin {

struct World {
  int64_t rank = 0;  // of this process, among all
  int64_t size = 1;  // processes
  int64_t local_rank = 0;
  int64_t local_size = 1;  // processes on this node
  int64_t node_rank = 0;
  int64_t num_nodes = 1;
  // The address of rank 0's rendezvous store; port 0: this process only.
  std::string master_address = "127.0.0.1";
  int64_t master_port = 0;
  // False if no launcher has set this rank's place, as for ranks started by hand: the local and node ranks are then
  // correct once all ranks have connected.
  bool place_is_known = true;
  bool by_hand = false;                 // set by RANK and WORLD_SIZE, or --rank and --world-size, without a launcher
  std::string source = "this process";  // what set these values, for messages: "torchrun", "SLURM", …
};

/// "rank 0 of 2", for messages.
[[nodiscard]] inline std::string rank_text(int64_t rank, int64_t size) {
  return "rank " + std::to_string(rank) + " of " + std::to_string(size);
}
[[nodiscard]] inline std::string rank_text(const World& world) {
  return rank_text(world.rank, world.size);
}

}  // namespace levin
