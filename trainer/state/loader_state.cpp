#include "levin/trainer/state/loader_state.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <sstream>
#include <utility>

#include "levin/checkpoint/values_json.h"
#include "levin/core/process/console.h"
#include "levin/trainer/run/batch_stream.h"

namespace levin {

namespace {

constexpr const char* kPart = "train_loader";

std::string rank_key(int64_t rank) {
  return "rank" + std::to_string(rank);
}

// The loader's state before the batch that a checkpoint of this moment continues with.
State own_loader_state(const Run& run) {
  const Epoch& epoch = run.fit.epoch;
  if (run.fit.batches == nullptr) return run.fit.train.loaders[0]->state_dict();
  return epoch.batch_running ? epoch.window_loader_state : run.fit.batches->state_after();
}

// A state as bytes: each number, text and tensor is preceded by its length.
std::string packed(const State& state) {
  std::ostringstream bytes;
  const auto put = [&](const std::string& text) { bytes << text.size() << ' ' << text; };
  put(values_to_json(state.values));
  for (const auto& [name, tensor] : state.tensors) {
    const at::Tensor here = tensor.cpu().contiguous();
    put(name);
    bytes << static_cast<int>(here.scalar_type()) << ' ' << here.dim() << ' ';
    for (const int64_t size : here.sizes()) bytes << size << ' ';
    put(std::string(static_cast<const char*>(here.const_data_ptr()), here.nbytes()));
  }
  return bytes.str();
}

State unpacked(const std::string& text) {
  std::istringstream bytes(text);
  const auto take = [&] {
    size_t length = 0;
    bytes >> length;
    bytes.get();
    std::string part(length, '\0');
    bytes.read(part.data(), static_cast<std::streamsize>(length));
    return part;
  };
  State state;
  state.values = values_from_json(take());
  while (bytes.peek() != std::char_traits<char>::eof()) {
    const std::string name = take();
    int type = 0;
    size_t dims = 0;
    bytes >> type >> dims;
    std::vector<int64_t> sizes(dims);
    for (int64_t& size : sizes) bytes >> size;
    bytes.get();
    const std::string data = take();
    at::Tensor tensor = at::empty(sizes, static_cast<at::ScalarType>(type));
    if (!data.empty()) std::memcpy(tensor.mutable_data_ptr(), data.data(), data.size());
    state.tensors[name] = std::move(tensor);
  }
  return state;
}

}  // namespace

State states_of_ranks(const Run& run, const State& own) {
  State all;
  if (!run.has_peers() || run.entry.failing) {
    all.put(rank_key(run.strategy->ranks().rank()), own);
    return all;
  }
  const std::vector<std::string> states = run.strategy->ranks().gather(packed(own));
  for (size_t rank = 0; rank < states.size(); ++rank) {
    all.put(rank_key(static_cast<int64_t>(rank)), unpacked(states[rank]));
  }
  return all;
}

State state_of_rank(const Run& run, const State& all) {
  return all.part(rank_key(run.strategy->ranks().rank()));
}

void put_loader_state(const Run& run, State& checkpoint) {
  if (!run.fit.train.has_state) return;
  State own = own_loader_state(run);
  run.fit.train.loaders[0]->add_to_checkpoint(own);
  checkpoint.put(kPart, states_of_ranks(run, own));
}

void restore_loader_state(Run& run) {
  const State saved = state_of_rank(run, std::exchange(run.fit.resumed_loader, {}));
  Loader& loader = *run.fit.train.loaders[0];
  const HookScope scope(run.entry, Hook::load_state_dict);
  if (!saved.empty()) return loader.load_state_dict(saved);
  if (run.progress.total_batches == 0 || loader.state_dict().empty()) return;
  Console::instance().warn(run.newest_checkpoint + ": it holds no state of the training loader of rank " +
                           std::to_string(run.strategy->ranks().rank()) +
                           ". The loader starts from scratch, so the run does not continue exactly as it would have.");
}

}  // namespace levin
