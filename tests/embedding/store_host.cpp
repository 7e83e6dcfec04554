// A program with a TCP store, OpenMP settings and parallel regions of its own, which trains with Levin: on one rank, or
// as one of the ranks that its environment names. Prints the weights.
//   store_host FOLDER STORE_PORT   MASTER_PORT is Levin's port
#include <ATen/Parallel.h>
#include <omp.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "embedding/small_training.h"
#include "levin/core/options/error.h"

namespace levin::test {
namespace {

int64_t number(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::stoll(text) : otherwise;
}

const int64_t kRank = number("RANK", 0);
const int64_t kRanks = number("WORLD_SIZE", 1);

// The program's own store: a server on rank 0, and a client on every rank.
c10::intrusive_ptr<c10d::TCPStore> open_store(uint16_t port) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = kRank == 0;
  options.numWorkers = static_cast<size_t>(kRanks);
  return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

// Exchanges one key for each rank, which waits for all of them.
void exchange(c10d::TCPStore& store, const std::string& key) {
  store.set(key + std::to_string(kRank), std::vector<uint8_t>{static_cast<uint8_t>(kRank)});
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    if (store.get(key + std::to_string(rank)) == std::vector<uint8_t>{static_cast<uint8_t>(rank)}) continue;
    throw Error("the store has a different value of " + key + std::to_string(rank));
  }
}

struct OpenMp {
  int threads = omp_get_max_threads();
  int dynamic = omp_get_dynamic();
  int levels = omp_get_max_active_levels();
  std::pair<omp_sched_t, int> schedule = [] {
    std::pair<omp_sched_t, int> now;
    omp_get_schedule(&now.first, &now.second);
    return now;
  }();
  bool operator==(const OpenMp&) const = default;
};

void configure_openmp() {
  (void)at::get_num_threads();  // LibTorch's first use of OpenMP on a thread sets the number
  omp_set_num_threads(3);
  omp_set_dynamic(1);
  omp_set_max_active_levels(2);
  omp_set_schedule(omp_sched_guided, 7);
}

int64_t sum_of_region() {
  int64_t sum = 0;
#pragma omp parallel for schedule(runtime) reduction(+ : sum)
  for (int64_t k = 0; k < 1000; ++k) sum += k;
  return sum;
}

void run(const std::string& folder, uint16_t port) {
  const auto store = open_store(port);
  exchange(*store, "before");
  const int64_t keys = store->getNumKeys();
  configure_openmp();
  const OpenMp before;
  SmallNet net;
  train_small(net, {.strategy = kRanks > 1 ? "ddp" : "auto", .devices = kRanks, .record_steps = true}, folder);
  if (OpenMp() != before) throw Error("an OpenMP setting has changed");
  if (sum_of_region() != 499500) throw Error("a parallel region has a different result");
  exchange(*store, "after");
  if (kRank == 0 && store->getNumKeys() != keys + kRanks) throw Error("the store has keys of other programs");
  if (kRank == 0) store->set("counted", std::vector<uint8_t>{});
  (void)store->get("counted");
  std::cout << net.text() << std::endl;
  if (kRank != 0) return store->set("end" + std::to_string(kRank), std::vector<uint8_t>{});
  for (int64_t rank = 1; rank < kRanks; ++rank) (void)store->get("end" + std::to_string(rank));  // the server ends last
}

}  // namespace
}  // namespace levin::test

int main(int, char** argv) {
  try {
    levin::test::run(argv[1], static_cast<uint16_t>(std::stoi(argv[2])));
  } catch (const std::exception& error) {
    std::cerr << "store_host: " << error.what() << std::endl;
    return 1;
  }
  return 0;
}
