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
  // Where rank 0 keeps the store that all meet at; port 0: nobody but this process.
  std::string master_address = "127.0.0.1";
  int64_t master_port = 0;
  // Nobody said where this rank is, as with ranks that were started by hand: the local and node numbers are right once
  // all ranks have met.
  bool place_is_known = true;
  bool by_hand = false;                 // RANK and WORLD_SIZE, or --rank and --world-size, and no launcher
  std::string source = "this process";  // who said so, for messages: "torchrun", "SLURM", …
};

}  // namespace levin
