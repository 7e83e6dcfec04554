// What a checkpoint of 512 MiB costs: saved durably by Levin, compared with `dd conv=fsync` of the same bytes in the
// same folder, torch::save and Python's torch.save (which leave the bytes in the page cache), and loaded with verified
// checksums, compared with torch::load and torch.load (which verify nothing), from the page cache. Also measures how
// long training waits for an asynchronous save, compared with a plain copy of the same bytes in memory.
#include <fcntl.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/checkpoint_writer.h"
#include "peer.h"
#include "rounds.h"

namespace bench::checkpoint {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int64_t kMiB = 1 << 20;

// A model's weights and AdamW's two moments: one large table, layers of 4 MiB and their small vectors.
levin::State make_state(int64_t mib) {
  levin::State state;
  state.set<int64_t>("epoch", 3);
  torch::manual_seed(0);
  int64_t left = mib * kMiB;
  const auto add = [&](const std::string& name, int64_t bytes) {
    state.tensors[name] = torch::randn({bytes / 4});
    left -= bytes;
  };
  for (const char* part : {"model", "optimizers.0.exp_avg", "optimizers.0.exp_avg_sq"}) {
    add(std::string(part) + ".embedding.weight", mib * kMiB * 3 / 32);
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

struct Files {
  fs::path folder;
  std::string ours = folder / "levin.ckpt", theirs = folder / "torch.pt";
  std::string copy = folder / "dd.copy", written = folder / "written";
};

// A save of fresh files, with the disk idle before it.
Candidate save(std::string name, const Files& files, std::function<void()> action) {
  return {std::move(name), [&files, action = std::move(action)] {
            fs::remove(files.written);
            fs::remove(files.copy);
            return timed(action);
          }};
}

Candidate python(std::string name, const std::shared_ptr<Peer>& peer, const std::string& words) {
  return {std::move(name), [peer, words] {
            ::sync();
            return peer->round(words);
          }};
}

void measure(const Options& options, int64_t mib, const Files& files, Report& report) {
  const levin::State state = make_state(mib);
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : state.tensors) tensors.push_back(tensor);
  levin::write_checkpoint(files.ours, state);
  torch::save(tensors, files.theirs);
  if (!torch::equal(levin::read_checkpoint(files.ours).tensor("model.rest"), state.tensor("model.rest"))) {
    throw std::runtime_error("what was read is not what was written");
  }
  const auto peer = Peer::start("checkpoint", {files.folder.string(), std::to_string(mib)});
  if (peer != nullptr) report.peers(peer->versions());

  std::vector<Candidate> saves = {
      save("dd conv=fsync", files, [&] { run_dd(files.ours, files.copy); }),
      save("Levin, durable", files, [&] { levin::write_checkpoint(files.written, state); }),
      save("torch::save and fsync", files, [&] { torch::save(tensors, files.written), fsync_file(files.written); }),
      save("torch::save, not on the disk", files, [&] { torch::save(tensors, files.written); })};
  std::vector<Candidate> loads = {
      {"torch::load", [&] { return timed([&] { load_by_torch(files.theirs); }); }},
      {"Levin, verified", [&] { return timed([&] { (void)levin::read_checkpoint(files.ours); }); }}};
  if (peer != nullptr) {
    saves.push_back(python("torch.save and fsync", peer, "save_and_fsync"));
    saves.push_back(python("torch.save, not on the disk", peer, "save"));
    loads.push_back(python("torch.load", peer, "load"));
  }
  levin::CheckpointWriter writer;
  PlainCopy plain(tensors);
  const std::vector<Candidate> copies = {
      {"plain memory copy", [&] { return timed([&] { plain.run(); }); }},
      {"Levin, asynchronous: the stall", [&] { return stall(writer, state, files.written); }}};

  const std::string size = std::to_string(mib) + " MiB";
  const auto saved = interleave(saves, options);
  report.table("save " + size, "ms", saved);
  const auto loaded = interleave(loads, options);
  report.table("load " + size + " from the page cache", "ms", loaded);
  const auto copied = interleave(copies, options);
  report.table("copy " + size + " before it is written in the background", "ms", copied);
  report.number("save_rate_to_dd", ratio(saved, "dd conv=fsync", "Levin, durable"));
  report.number("save_speed_to_torch_save", ratio(saved, "torch::save and fsync", "Levin, durable"));
  report.number("save_speed_to_python", ratio(saved, "torch.save and fsync", "Levin, durable"));
  report.number("load_speed_to_torch_load", ratio(loaded, "torch::load", "Levin, verified"));
  report.number("load_speed_to_python", ratio(loaded, "torch.load", "Levin, verified"));
  report.number("stall_to_copy", ratio(copied, "Levin, asynchronous: the stall", "plain memory copy"));
}

int run(const Options& options) {
  const char* wanted = std::getenv("LEVIN_BENCH_DIR");
  const Files files{fs::path(wanted != nullptr ? wanted : "build/bench") / "checkpoint-files"};
  fs::create_directories(files.folder);
  Report report("checkpoint");
  measure(options, options.quick ? 16 : 512, files, report);
  fs::remove_all(files.folder);
  report.write();
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  const auto options = read_options(argc, argv, 5);
  return guarded([&] { return run(options); });
}

}  // namespace bench::checkpoint
