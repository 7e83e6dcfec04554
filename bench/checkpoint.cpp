// What a checkpoint of 512 MiB costs: saved durably by Levin beside `dd conv=fsync` of the same bytes in the same
// folder and beside torch::save (which leaves the bytes to the page cache), and loaded with its checksums verified
// beside torch::load (which verifies nothing), from the page cache. And what training waits for when a save is
// asynchronous, beside a plain copy of the same bytes in memory.
#include <fcntl.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <stdexcept>

#include "levin/trainer/checkpoint_file.h"
#include "levin/trainer/checkpoint_writer.h"
#include "rounds.h"

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int64_t kMiB = 1 << 20;

// A model's weights and AdamW's two moments: one large table, layers of 4 MiB and their small vectors; 512 MiB.
levin::State make_state() {
  levin::State state;
  state.set<int64_t>("epoch", 3);
  torch::manual_seed(0);
  int64_t left = 512 * kMiB;
  const auto add = [&](const std::string& name, int64_t bytes) {
    state.tensors[name] = torch::randn({bytes / 4});
    left -= bytes;
  };
  for (const char* part : {"model", "optimizers.0.exp_avg", "optimizers.0.exp_avg_sq"}) {
    add(std::string(part) + ".embedding.weight", 48 * kMiB);
  }
  for (int layer = 0; left >= 12 * kMiB + 3 * 4096; ++layer) {
    for (const char* part : {"model", "optimizers.0.exp_avg", "optimizers.0.exp_avg_sq"}) {
      add(std::string(part) + ".layers." + std::to_string(layer) + ".weight", 4 * kMiB);
      add(std::string(part) + ".layers." + std::to_string(layer) + ".bias", 4096);
    }
  }
  add("model.rest", left);
  return state;
}

// Milliseconds of `action`, with the disk idle before it.
template <class Action>
double timed(Action action) {
  ::sync();
  const auto start = Clock::now();
  action();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void fsync_file(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || ::fsync(fd) != 0) throw std::runtime_error("cannot sync " + path.string());
  ::close(fd);
}

void run_dd(const fs::path& from, const fs::path& to) {
  const std::string command = "dd if='" + from.string() + "' of='" + to.string() + "' bs=1M conv=fsync status=none";
  if (std::system(command.c_str()) != 0) throw std::runtime_error("failed: " + command);
}

void load_by_torch(const std::string& path) {
  std::vector<at::Tensor> tensors;
  torch::load(tensors, path);
}

// Into memory that is there already, as the writer's is from its second save on.
class PlainCopy {
 public:
  explicit PlainCopy(const std::vector<at::Tensor>& tensors) : from_(tensors) {
    for (const auto& tensor : tensors) to_.push_back(torch::zeros_like(tensor));
  }
  void run() {
    for (size_t i = 0; i < from_.size(); ++i)
      std::memcpy(to_[i].mutable_data_ptr(), from_[i].const_data_ptr(), from_[i].nbytes());
  }

 private:
  std::vector<at::Tensor> from_, to_;
};

// The stall of one asynchronous save; the writing itself is waited for afterwards.
double stall(levin::CheckpointWriter& writer, const levin::State& state, const std::string& path) {
  writer.finish();
  levin::CheckpointRequest request{path};
  request.state = state;
  request.done = [](const std::string& error) {
    if (!error.empty()) throw std::runtime_error(error);
  };
  const double milliseconds = timed([&] { writer.submit({std::move(request)}, {}); });
  writer.finish();
  return milliseconds;
}

}  // namespace

int main() {
  const char* wanted = std::getenv("LEVIN_BENCH_DIR");
  const fs::path folder = fs::path(wanted != nullptr ? wanted : "build/bench") / "checkpoint-files";
  fs::create_directories(folder);
  const std::string ours = folder / "levin.ckpt", theirs = folder / "torch.pt", copy = folder / "dd.copy",
                    written = folder / "written";
  const levin::State state = make_state();
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : state.tensors) tensors.push_back(tensor);
  levin::write_checkpoint(ours, state);
  torch::save(tensors, theirs);
  if (!torch::equal(levin::read_checkpoint(ours).tensor("model.rest"), state.tensor("model.rest"))) {
    throw std::runtime_error("what was read is not what was written");
  }
  const auto save = [&](const std::function<void()>& action) {
    return [&, action] {
      fs::remove(written);
      fs::remove(copy);
      return timed(action);
    };
  };
  const auto figures =
      bench::interleave({{"dd conv=fsync", save([&] { run_dd(ours, copy); })},
                         {"Levin, durable", save([&] { levin::write_checkpoint(written, state); })},
                         {"torch::save and fsync", save([&] { torch::save(tensors, written), fsync_file(written); })},
                         {"torch::save, not on the disk", save([&] { torch::save(tensors, written); })},
                         {"torch::load", [&] { return timed([&] { load_by_torch(theirs); }); }},
                         {"Levin, verified", [&] { return timed([&] { (void)levin::read_checkpoint(ours); }); }}},
                        5);
  levin::CheckpointWriter writer;
  PlainCopy plain(tensors);
  const auto stalls =
      bench::interleave({{"plain memory copy", [&] { return timed([&] { plain.run(); }); }},
                         {"Levin, asynchronous: the stall", [&] { return stall(writer, state, written); }}},
                        5);
  fs::remove_all(folder);
  bench::print_table("save 512 MiB", "ms", {figures.begin(), figures.begin() + 4});
  bench::print_table("\nload 512 MiB from the page cache", "ms", {figures.begin() + 4, figures.end()});
  bench::print_table("\ncopy 512 MiB before it is written beside the training", "ms", stalls);
  const double stall_ratio = stalls[1].median / stalls[0].median;
  const double save_rate = figures[0].median / figures[1].median, load_speed = figures[4].median / figures[5].median;
  std::printf(
      "\nLevin saves at %.2f of dd's rate, loads %.2f times as fast as torch::load, and an asynchronous save stalls "
      "training for %.2f of a plain copy\n",
      save_rate, load_speed, stall_ratio);
  bench::write_json("checkpoint", "ms", figures,
                    {{"save_rate_to_dd", save_rate},
                     {"save_speed_to_torch_save", figures[2].median / figures[1].median},
                     {"load_speed_to_torch_load", load_speed},
                     {"stall_to_copy", stall_ratio}});
}
