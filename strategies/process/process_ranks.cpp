#include "levin/strategies/process/process_ranks.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/rank_status.h"
#include "levin/core/tensors.h"
#include "levin/libtorch/rank_backend.h"
#include "levin/libtorch/tcp_store.h"
#include "levin/libtorch/version.h"
#include "levin/strategies/launch/cluster_environment.h"
#include "levin/strategies/launch/launcher.h"
#include "levin/strategies/launch/rank_process.h"
#include "levin/strategies/launch/store_gate.h"
#include "levin/strategies/process/rank_difference.h"
#include "levin/strategies/process/rank_groups.h"
#include "levin/strategies/process/roll_call.h"

namespace levin {

namespace {

using Milliseconds = std::chrono::milliseconds;

c10d::ReduceOp::RedOpType c10d_op(ReduceOp op) {
  if (op == ReduceOp::min) return c10d::ReduceOp::MIN;
  if (op == ReduceOp::max) return c10d::ReduceOp::MAX;
  return c10d::ReduceOp::SUM;
}

// For kept_store: runs on several threads may join at once.
std::mutex& stores_mutex() {
  static std::mutex mutex;
  return mutex;
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
  return make_tcp_store(address.host, options);
}

// The address given to the other ranks may be a different machine's, on which they find a second process with rank 0.
// So that both processes report this, rank 0 connects through that address too, and not directly to its own store.
c10::intrusive_ptr<c10d::Store> store_of(const World& world, Milliseconds timeout) {
  const std::lock_guard lock(stores_mutex());
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

// Each rendezvous of the same ranks has separate keys, so that it does not read keys that an earlier rendezvous, or a
// restarted rank, has left in a store that outlives it. Under Levin's launchers a store lives as long as one attempt,
// and each node's launcher counts its own restarts (a new launcher begins at 0), so the keys do not contain that count.
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

constexpr size_t kBroadcastBytes = 250 << 20;  // sent together

std::chrono::milliseconds milliseconds(Seconds time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time);
}

std::string shapes_text(const ModuleTensors& module) {
  std::string text;
  for (const auto* named : {&module.parameters, &module.buffers}) {
    for (const auto& [name, tensor] : *named) {
      text += name + " " + shape_text(tensor.sizes()) + " " + c10::toString(tensor.scalar_type()) +
              (tensor.requires_grad() ? " trained" : "") + "\n";
    }
  }
  return text;
}

}  // namespace

struct ProcessRanks::Groups {
  Milliseconds timeout;
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::ProcessGroup> control;
  std::map<std::string, c10::intrusive_ptr<c10d::ProcessGroup>> others;  // by name

  // As PyTorch's destroy_process_group(). A group over NCCL that is only destroyed warns that this was not called, and
  // aborts what it is doing. After an error the other ranks may be gone, and what waits for them must not be waited
  // for.
  ~Groups() {
    const bool has_failed = std::uncaught_exceptions() > 0;
    for (auto& [name, group] : others) {
      if (!group || group->getBackendType() != c10d::ProcessGroup::BackendType::NCCL) continue;
      try {
        close_group(*group, has_failed);
      } catch (const std::exception& error) {
        Console::instance().warn("The process group \"" + name + "\" could not be closed: " + first_line(error.what()));
      }
    }
  }

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
  const std::string cause = first_line(error.what());
  const bool is_limited = cause.find(system_error_text(EAGAIN)) != std::string::npos;  // of a thread that cannot start
  throw RankError(rank_text(world) + " (set by " + world.source + ") cannot connect to the others at " +
                  world.master_address + ":" + std::to_string(world.master_port) + ": " + cause +
                  (has_advice ? ""
                   : is_limited
                       ? ". This machine allows no more threads or memory: raise its limits (ulimit -u, -v), or "
                         "start fewer ranks."
                       : ". Check that all ranks run, and that the port reaches rank 0's machine.") +
                  (restarts_so_far() > 0 && world.num_nodes > 1 && world.rank != 0
                       ? " A node that replaces rank 0's must be reachable at the same address."
                       : ""));
}

ProcessRanks::ProcessRanks(std::string backend, Seconds timeout, Seconds startup)
    : backend_(std::move(backend)), timeout_(timeout), startup_timeout_(startup) {}
ProcessRanks::~ProcessRanks() = default;

void ProcessRanks::join(const World& world) {
  static std::atomic<int64_t> count = 0;
  const int64_t rendezvous = count++;
  world_ = world;
  // Restarted ranks may wait for nodes that are gone; on the first start the others may still be starting.
  const Milliseconds timeout =
      milliseconds(restarts_so_far() > 0 ? std::min(timeout_, startup_timeout_) : startup_timeout_);
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  groups_ = std::make_shared<Groups>();
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
      {
        const std::lock_guard lock(stores_mutex());
        kept_store(world).reset();
      }
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
  }
  set_timeout(startup_timeout_);
  if (!world.by_hand || world.size == 1) return;
  const auto machines = gather(this_machine());  // on all ranks: some may have their places set
  if (!world.place_is_known) world_ = place_among(world, machines);
}

static at::Tensor reduce_over(c10d::ProcessGroup& group, const at::Tensor& value, ReduceOp op) {
  std::vector<at::Tensor> tensors = {value.detach().cpu().clone(at::MemoryFormat::Contiguous)};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d_op(op);
  wait_for(*group.allreduce(tensors, options), group, "a reduction");
  if (op == ReduceOp::mean) tensors[0].div_(static_cast<double>(group.getSize()));
  return tensors[0].to(value.device());
}

at::Tensor ProcessRanks::reduce(const at::Tensor& value, ReduceOp op) {
  return reduce_over(*groups_->control, value, op);
}

at::Tensor ProcessRanks::reduce_in_step(const at::Tensor& value, ReduceOp op) {
  return reduce_over(*group("steps", "auto", at::kCPU), value, op);
}

at::Tensor ProcessRanks::gather(const at::Tensor& value) {
  std::vector<at::Tensor> mine = {value.detach().cpu().contiguous()};
  std::vector<std::vector<at::Tensor>> all(1);
  for (int64_t k = 0; k < world_.size; ++k) all[0].push_back(at::empty(mine[0].sizes(), mine[0].options()));
  groups_->run("a gathering", [&](c10d::ProcessGroup& group) { return group.allgather(all, mine); });
  return at::stack(all[0]);
}

at::Tensor ProcessRanks::gather_on_rank_zero(const at::Tensor& value) {
  std::vector<at::Tensor> mine = {value.detach().cpu().contiguous()};
  std::vector<std::vector<at::Tensor>> all;
  if (world_.rank == 0) {
    all.emplace_back();
    for (int64_t k = 0; k < world_.size; ++k) all[0].push_back(at::empty(mine[0].sizes(), mine[0].options()));
  }
  groups_->run("a gathering", [&](c10d::ProcessGroup& group) { return group.gather(all, mine); });
  return all.empty() ? at::Tensor() : at::stack(all[0]);
}

// Reduces each number and its complement by max: the complement of the latter is the minimum.
bool ProcessRanks::same_on_all(const std::string& text) {
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

std::vector<std::string> ProcessRanks::gather(const std::string& text) {
  if (same_on_all(text)) return std::vector<std::string>(static_cast<size_t>(world_.size), text);
  const at::Tensor length = at::empty({1}, at::kLong).fill_(static_cast<int64_t>(text.size()));
  const at::Tensor lengths = gather(length).flatten();
  const int64_t longest = std::max<int64_t>(1, lengths.max().item<int64_t>());
  at::Tensor bytes = at::empty({longest}, at::kByte).zero_();
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  const at::Tensor all = gather(bytes);
  std::vector<std::string> texts;
  for (int64_t k = 0; k < world_.size; ++k) {
    const auto size = static_cast<size_t>(lengths.const_data_ptr<int64_t>()[k]);
    texts.emplace_back(static_cast<const char*>(all[k].const_data_ptr()), size);
  }
  return texts;
}

std::string ProcessRanks::merge_lines(const std::string& text) {
  if (same_on_all(text)) return text;
  const at::Tensor length = at::empty({1}, at::kLong).fill_(static_cast<int64_t>(text.size()));
  const int64_t longest = reduce(length, ReduceOp::max).item<int64_t>();
  at::Tensor bytes = at::empty({longest}, at::kByte).fill_('\n');
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  const at::Tensor all = gather_on_rank_zero(bytes);
  std::vector<std::string> gathered;
  if (all.defined()) gathered = split({static_cast<const char*>(all.const_data_ptr()), all.nbytes()}, '\n');
  const std::set<std::string> lines(gathered.begin(), gathered.end());
  std::string merged;
  for (const std::string& line : lines) merged += line.empty() ? "" : line + "\n";
  return broadcast(merged);
}

std::string ProcessRanks::broadcast(const std::string& text) {
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
  if (world_.rank == 0) std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  bytes = send({bytes});
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(size)};
}

void ProcessRanks::barrier() {
  (void)reduce(at::empty({1}).zero_(), ReduceOp::sum);
}

void ProcessRanks::set_timeout(Seconds time) {
  const Milliseconds timeout = milliseconds(time);
  groups_->timeout = timeout;
  bool is_set = levin::set_timeout(*groups_->control, timeout);
  for (auto& [name, group] : groups_->others) is_set = levin::set_timeout(*group, timeout) && is_set;
  if (is_set || world_.rank != 0) return;
  Console::instance().warn(needs_torch_text("DDPOptions.timeout over NCCL", 2, 9) +
                           " Ranks wait as long as startup_timeout allows.");
}

c10::intrusive_ptr<c10d::ProcessGroup> ProcessRanks::group(const std::string& name, const std::string& backend,
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
  const GroupPlace place = {groups_->store, world_, name, groups_->timeout};
  if (backend == "nccl") group = make_nccl_group(place, device);
  if (backend == "shm" || (backend == "auto" && device.is_cpu())) {
    group = make_shm_group(
        place, [this](const std::string& text) { return gather(text); }, backend == "shm");
  }
  if (!group) group = make_gloo_group(place, 2, device);
  return group;
}

ProcessRanks::Group ProcessRanks::group(const std::string& name) {
  const at::Device device = parts().placement().device();
  return group(name, backend_ == "auto" && device.is_cuda() ? "nccl" : backend_, device);
}

ProcessRanks::Group ProcessRanks::cpu_group(const std::string& name) {
  return group(name, parts().placement().device().is_cuda() || backend_ == "nccl" ? "gloo" : backend_, at::kCPU);
}

void ProcessRanks::check_same_shapes(const ModuleTensors& module) {
  const auto different = first_difference(gather(shapes_text(module)));
  if (!different) return;
  throw ConfigError("TrainerOptions.strategy: the module differs between ranks: rank 0 has " + different->on_rank_zero +
                    ", rank " + std::to_string(different->rank) + " has " + different->on_rank +
                    ". Build it in the same way on every rank.");
}

void ProcessRanks::broadcast_tensors(const Group& group, std::vector<at::Tensor> tensors) const {
  if (tensors.empty()) return;
  const at::NoGradGuard no_grad;
  for (auto& tensor : tensors) tensor = tensor.detach();
  const RankWait waiting(self() + " waits for the others: rank 0's weights or buffers");
  broadcast_from_rank_zero(group, tensors, kBroadcastBytes);
}

void ProcessRanks::first_step_done() {
  if (std::exchange(first_step_, false)) set_timeout(timeout_);
}

void ProcessRanks::begin_first_step() {
  if (!first_step_) return;
  barrier();
  first_step_done();
}

at::Tensor ProcessRanks::sum_on_device(const at::Tensor& value) {
  const at::Device device = parts().placement().device();
  if (device.is_cpu()) return reduce_in_step(value, ReduceOp::sum);
  std::vector<at::Tensor> sums = {value.detach().to(device, /*non_blocking=*/false, /*copy=*/true)};
  const Group ranks = group("gradients");
  wait_for(*ranks->allreduce(sums), *ranks, "a reduction");
  return sums[0].to(value.device());
}

bool ProcessRanks::any(bool value) {
  if (world_.size == 1) return value;
  return reduce(at::scalar_tensor(value ? 1.0 : 0.0), ReduceOp::max).item<float>() > 0;
}

void ProcessRanks::copy_from_rank_zero(const std::vector<std::pair<std::string, at::Tensor>>& named) {
  if (world_.size == 1) return;
  check_same_shapes({{}, named});
  broadcast_tensors(group("gradients"), tensors_of(named));
}

ProcessRanks& process_ranks(RankCollectives& ranks) {
  if (auto* own = dynamic_cast<ProcessRanks*>(&ranks)) return *own;
  throw ConfigError(
      "TrainerOptions.strategy: its ranks were replaced by a part without process groups. Replace the parts that need "
      "them too, or derive a strategy from Strategy.");
}

std::vector<at::Tensor> tensors_of(const std::vector<std::pair<std::string, at::Tensor>>& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

}  // namespace levin
