#include "levin/strategies/process/collectives.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/stack.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <map>
#include <set>
#include <sstream>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "levin/core/console.h"
#include "levin/core/error.h"
#include "levin/core/rank_status.h"
#include "levin/strategies/launch/launcher.h"
#include "levin/strategies/launch/rank_process.h"
#include "levin/strategies/launch/store_gate.h"
#include "levin/strategies/process/rank_groups.h"
#include "levin/strategies/process/roll_call.h"
#include "levin/strategies/process/store_probe.h"

namespace levin {

namespace {

using Milliseconds = std::chrono::milliseconds;

c10d::ReduceOp::RedOpType c10d_op(ReduceOp op) {
  if (op == ReduceOp::min) return c10d::ReduceOp::MIN;
  if (op == ReduceOp::max) return c10d::ReduceOp::MAX;
  return c10d::ReduceOp::SUM;
}

// One store per address, until the process ends: a program may make several trainers, one after another.
c10::intrusive_ptr<c10d::Store>& kept_store(const World& world) {
  static std::map<std::string, c10::intrusive_ptr<c10d::Store>> stores;
  return stores[world.master_address + ":" + std::to_string(world.master_port)];
}

// Whether Levin's launcher has opened the port for the ranks of this machine, so that no other program can use it.
bool is_launchers_port(const World& world) {
  return launched_by_levin() && world.num_nodes == 1;
}

c10::intrusive_ptr<c10d::Store> make_store(const World& world, const StoreAddress& address, Milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.isServer = address.listening.has_value();
  options.port = static_cast<uint16_t>(address.port);
  options.masterListenFd = address.listening;
  options.numWorkers = static_cast<size_t>(world.size);
  options.waitWorkers = false;
  options.timeout = timeout;
  options.multiTenant = true;
  if (!options.isServer && !address.is_proved && !is_launchers_port(world)) {
    await_store(address.host, address.port, timeout);
  }
  return c10::make_intrusive<c10d::TCPStore>(address.host, options);
}

// If the address that the others were given is another machine's, they may find a second process with rank 0 there. So
// that both report it, this process connects through that address too, and not directly to its own store.
c10::intrusive_ptr<c10d::Store> store_of(const World& world, Milliseconds timeout) {
  auto& store = kept_store(world);
  if (store) return store;
  StoreAddress address = {.host = world.master_address, .port = world.master_port};
  const int socket = inherited_store_socket();
  if (world.rank == 0 && !launcher_keeps_store() && socket >= 0) {
    address.listening = socket;
  } else if (!launcher_keeps_store() && !is_launchers_port(world)) {
    address = open_store_address(world, timeout);
  }
  store = make_store(world, address, timeout);
  if (!address.is_elsewhere) return store;
  static std::vector<c10::intrusive_ptr<c10d::Store>> own;  // to the end of the process
  own.push_back(std::move(store));
  return store = make_store(world, reach_store(world, timeout), timeout);
}

// Each rendezvous of the same ranks has separate keys, so that it does not read those that another one, or a restarted
// rank, has left in a store that outlives it. Under Levin's launchers a store lives as long as one attempt, and each
// node's launcher counts its own restarts (a new launcher begins at 0), so the keys do not contain that count.
c10::intrusive_ptr<c10d::Store> rendezvous_store(const World& world, int64_t rendezvous, Milliseconds timeout) {
  const auto store = store_of(world, timeout);
  const std::string start = launched_by_levin() ? "levin" : "levin" + std::to_string(restarts_so_far());
  return c10::make_intrusive<c10d::PrefixStore>(start + "." + std::to_string(rendezvous), store);
}

// Whether a failed rendezvous may belong to an attempt that is still ending on other nodes: this node may have been
// restarted before rank 0's launcher has ended its own ranks.
bool may_have_come_early(const World& world, int64_t rendezvous) {
  return launched_by_levin() && world.num_nodes > 1 && world.rank != 0 && rendezvous == 0;
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

}  // namespace

struct Collectives::Groups {
  World world;
  Milliseconds timeout;
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::ProcessGroup> control;
  std::map<std::string, c10::intrusive_ptr<c10d::ProcessGroup>> others;  // by name

  // Runs one collective to completion.
  template <class Start>
  void run(const char* what, Start start) {
    wait_for(*start(*control), *control, what);
  }
};

void wait_for(c10d::Work& work, const c10d::ProcessGroup& group, const std::string& what, const std::string& advice) {
  const std::string self = rank_text(group.getRank(), group.getSize());
  const RankWait waiting(self + " waits for the others: " + what);
  try {
    work.wait();
  } catch (const std::exception& error) {
    throw RankError(self + ": " + what + " failed: " + first_line(error.what()) + ". " + advice);
  }
}

// Rethrows the error if it is detailed enough; for a catch block.
[[noreturn]] static void report_failed_rendezvous(const World& world, const std::exception& error) {
  if (dynamic_cast<const RankError*>(&error) != nullptr) throw;
  const bool has_advice = dynamic_cast<const Error*>(&error) != nullptr;
  throw RankError(rank_text(world) + " (set by " + world.source + ") cannot connect to the others at " +
                  world.master_address + ":" + std::to_string(world.master_port) + ": " + first_line(error.what()) +
                  (has_advice ? "" : ". Are all ranks running, and does that port reach rank 0's machine?") +
                  (restarts_so_far() > 0 && world.num_nodes > 1 && world.rank != 0
                       ? " A node that replaces rank 0's must be reachable at the same address."
                       : ""));
}

Collectives::Collectives(const World& world, Milliseconds timeout) : groups_(std::make_unique<Groups>()) {
  static std::atomic<int64_t> count = 0;
  const int64_t rendezvous = count++;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  groups_->world = world;
  groups_->timeout = timeout;
  while (!groups_->control) {
    try {
      groups_->store = rendezvous_store(world, rendezvous, timeout);
      call_roll(*groups_->store, world, timeout);
      groups_->control = make_gloo_group({groups_->store, world, "control", timeout}, 1);
    } catch (const std::exception& error) {
      const bool is_final = dynamic_cast<const Error*>(&error) != nullptr &&  // such as a rejected secret
                            dynamic_cast<const RendezvousClosed*>(&error) == nullptr;
      if (is_final || !may_have_come_early(world, rendezvous) || std::chrono::steady_clock::now() >= deadline) {
        report_failed_rendezvous(world, error);
      }
      groups_->store.reset();
      kept_store(world).reset();
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
  }
}

// As PyTorch's destroy_process_group(). A group over NCCL that is only destroyed warns that this was not called, and
// aborts what it is doing. After an error the other ranks may be gone, and what waits for them must not be waited for.
Collectives::~Collectives() {
  const bool has_failed = std::uncaught_exceptions() > 0;
  for (auto& [name, group] : groups_->others) {
    if (!group || group->getBackendType() != c10d::ProcessGroup::BackendType::NCCL) continue;
    try {
      has_failed ? group->abort() : group->shutdown();
    } catch (const std::exception& error) {
      Console::instance().warn("The process group \"" + name + "\" could not be closed: " + first_line(error.what()));
    }
  }
}

const World& Collectives::world() const {
  return groups_->world;
}

static at::Tensor reduce_over(c10d::ProcessGroup& group, const at::Tensor& value, ReduceOp op) {
  std::vector<at::Tensor> tensors = {value.detach().cpu().clone(at::MemoryFormat::Contiguous)};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d_op(op);
  wait_for(*group.allreduce(tensors, options), group, "a reduction");
  if (op == ReduceOp::mean) tensors[0].div_(static_cast<double>(group.getSize()));
  return tensors[0].to(value.device());
}

at::Tensor Collectives::reduce(const at::Tensor& value, ReduceOp op) {
  return reduce_over(*groups_->control, value, op);
}

at::Tensor Collectives::reduce_in_step(const at::Tensor& value, ReduceOp op) {
  return reduce_over(*group("steps", "auto", at::kCPU), value, op);
}

at::Tensor Collectives::gather(const at::Tensor& value) {
  std::vector<at::Tensor> mine = {value.detach().cpu().contiguous()};
  std::vector<std::vector<at::Tensor>> all(1);
  for (int64_t k = 0; k < groups_->world.size; ++k) all[0].push_back(at::empty(mine[0].sizes(), mine[0].options()));
  groups_->run("a gathering", [&](c10d::ProcessGroup& group) { return group.allgather(all, mine); });
  return at::stack(all[0]);
}

at::Tensor Collectives::gather_on_rank_zero(const at::Tensor& value) {
  std::vector<at::Tensor> mine = {value.detach().cpu().contiguous()};
  std::vector<std::vector<at::Tensor>> all;
  if (groups_->world.rank == 0) {
    all.emplace_back();
    for (int64_t k = 0; k < groups_->world.size; ++k) all[0].push_back(at::empty(mine[0].sizes(), mine[0].options()));
  }
  groups_->run("a gathering", [&](c10d::ProcessGroup& group) { return group.gather(all, mine); });
  return all.empty() ? at::Tensor() : at::stack(all[0]);
}

// Reduces each number and its complement by max: the complement of the latter is the minimum.
bool Collectives::same_on_all(const std::string& text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  const std::array<int64_t, 3> own = {static_cast<int64_t>(hash.low64), static_cast<int64_t>(hash.high64),
                                      static_cast<int64_t>(text.size())};
  at::Tensor numbers = at::empty({2, 3}, at::kLong);
  auto* const data = numbers.mutable_data_ptr<int64_t>();
  for (size_t k = 0; k < own.size(); ++k) {
    data[k] = own[k];
    data[own.size() + k] = ~own[k];
  }
  const at::Tensor largest = reduce(numbers, ReduceOp::max);
  const auto* const all = largest.const_data_ptr<int64_t>();
  bool same = true;
  for (size_t k = 0; k < own.size(); ++k) same = same && all[k] == ~all[own.size() + k];
  return same;
}

std::vector<std::string> Collectives::gather(const std::string& text) {
  if (same_on_all(text)) return std::vector<std::string>(static_cast<size_t>(groups_->world.size), text);
  const at::Tensor length = at::empty({1}, at::kLong).fill_(static_cast<int64_t>(text.size()));
  const at::Tensor lengths = gather(length).flatten();
  const int64_t longest = std::max<int64_t>(1, lengths.max().item<int64_t>());
  at::Tensor bytes = at::empty({longest}, at::kByte).zero_();
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  const at::Tensor all = gather(bytes);
  std::vector<std::string> texts;
  for (int64_t k = 0; k < groups_->world.size; ++k) {
    const auto size = static_cast<size_t>(lengths.const_data_ptr<int64_t>()[k]);
    texts.emplace_back(static_cast<const char*>(all[k].const_data_ptr()), size);
  }
  return texts;
}

std::string Collectives::merge_lines(const std::string& text) {
  if (same_on_all(text)) return text;
  const at::Tensor length = at::empty({1}, at::kLong).fill_(static_cast<int64_t>(text.size()));
  const int64_t longest = reduce(length, ReduceOp::max).item<int64_t>();
  at::Tensor bytes = at::empty({longest}, at::kByte).fill_('\n');
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  const at::Tensor all = gather_on_rank_zero(bytes);
  std::set<std::string> lines;
  if (all.defined()) {
    std::istringstream stream(std::string(static_cast<const char*>(all.const_data_ptr()), all.nbytes()));
    for (std::string line; std::getline(stream, line);) lines.insert(line);
  }
  std::string merged;
  for (const std::string& line : lines) merged += line.empty() ? "" : line + "\n";
  return broadcast(merged);
}

std::string Collectives::broadcast(const std::string& text) {
  c10d::BroadcastOptions options;
  options.rootRank = 0;
  const auto send = [&](std::vector<at::Tensor> tensors) {
    groups_->run("a broadcast", [&](c10d::ProcessGroup& group) { return group.broadcast(tensors, options); });
    return tensors[0];
  };
  const int64_t own = static_cast<int64_t>(text.size());
  const int64_t size = send({at::empty({1}, at::kLong).fill_(own)}).item<int64_t>();
  if (size == 0) return "";
  at::Tensor bytes = at::empty({size}, at::kByte);
  if (groups_->world.rank == 0) std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  bytes = send({bytes});
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(size)};
}

void Collectives::barrier() {
  (void)reduce(at::empty({1}).zero_(), ReduceOp::sum);
}

void Collectives::set_timeout(Milliseconds timeout) {
  groups_->timeout = timeout;
  groups_->control->setTimeout(timeout);
  for (auto& [name, group] : groups_->others) group->setTimeout(timeout);
}

c10::intrusive_ptr<c10d::ProcessGroup> Collectives::group(const std::string& name, const std::string& backend,
                                                          at::Device device) {
  auto& group = groups_->others[name];
  if (group) return group;
  if (backend == "nccl" && !device.is_cuda()) {
    throw ConfigError(
        "DDPOptions.process_group_backend: nccl requires GPUs, but this run is on the CPU. Use gloo, shm or auto, or "
        "accelerator: gpu.");
  }
  if (backend == "shm" && device.is_cuda()) {
    throw ConfigError(
        "DDPOptions.process_group_backend: shm is for tensors on the CPU, but this run is on GPUs. Use nccl or auto.");
  }
  const GroupPlace place = {groups_->store, groups_->world, name, groups_->timeout};
  if (backend == "nccl") group = make_nccl_group(place, device);
  if (backend == "shm" || (backend == "auto" && device.is_cpu())) {
    group = make_shm_group(
        place, [this](const std::string& text) { return gather(text); }, backend == "shm");
  }
  if (!group) group = make_gloo_group(place, 2, device);
  return group;
}

}  // namespace levin
