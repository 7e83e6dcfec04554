// The processes that train together: where this one is among them, and the mesh that they form.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace levin {

/// This process's position among all processes that train together.
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
  // False if no launcher has set the local rank and the node rank. Both are then correct once all ranks have
  // connected.
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

/// One dimension of a Mesh, as one rank sees it.
class MeshDimension {
 public:
  MeshDimension(int64_t size, int64_t index) : size_(size), index_(index) {}
  /// Returns the number of ranks along the dimension.
  [[nodiscard]] int64_t size() const { return size_; }
  /// Returns this rank's index along the dimension, from 0.
  [[nodiscard]] int64_t index() const { return index_; }

 private:
  int64_t size_;
  int64_t index_;
};

/// The ranks of a run as a grid with named dimensions, as PyTorch's DeviceMesh: ranks along `data` compute different
/// samples with the same weights. What depends on the number of samples (loaders, effective batch sizes, means of
/// losses and gradients, random numbers) asks data(), and not for the number of processes.
class Mesh {
 public:
  /// `sizes`: each dimension's name and size. Ranks are numbered along the last dimension first, so the product of the
  /// sizes is the number of ranks.
  Mesh(int64_t rank, std::vector<std::pair<std::string, int64_t>> sizes) : rank_(rank), sizes_(std::move(sizes)) {}

  /// Returns the dimension `name`; a dimension that the mesh does not have has one rank.
  [[nodiscard]] MeshDimension dimension(const std::string& name) const {
    int64_t left = rank_;
    for (size_t i = sizes_.size(); i-- > 0;) {
      if (sizes_[i].first == name) return {sizes_[i].second, left % sizes_[i].second};
      left /= sizes_[i].second;
    }
    return {1, 0};
  }
  /// Data-parallel replicas.
  [[nodiscard]] MeshDimension data() const { return dimension("data"); }

 private:
  int64_t rank_;
  std::vector<std::pair<std::string, int64_t>> sizes_;
};

}  // namespace levin
