// Measures loading of images from a folder: 640 x 480 JPEGs, a random part of each resized to 224 x 224, mirrored or
// not, and normalised, in shuffled batches of 64 by two workers; by Levin's ImageFolderData and by Python's DataLoader
// over torchvision's ImageFolder with the same transforms (peers/images.py). Then a store of the same images with a
// shorter side of 160 pixels, as `levin pack` writes it, parts of which are resized to 128 x 128: by StreamData, by
// Python's DataLoader over mosaicml-streaming with torchvision's transforms, and by ImageFolderData from the original
// files. All read the same files, from memory after the first round. Workers are started before what is timed.
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "levin/data/images/jpeg_encoder.h"
#include "levin/data/sets/image_folder_data.h"
#include "levin/data/streams/pack_images.h"
#include "levin/data/streams/stream_data.h"
#include "made_images.h"
#include "peer.h"
#include "rounds.h"

namespace bench::images {

namespace {

constexpr int64_t kBatchSize = 64;
constexpr int kHeight = 480, kWidth = 640;

/// Two classes of images in a folder of its own, removed with the object, as is the store next to it.
class Photos {
 public:
  explicit Photos(int64_t count)
      : root_(std::filesystem::temp_directory_path() / ("levin-bench-" + std::to_string(::getpid()))) {
    torch::manual_seed(0);
    for (int64_t i = 0; i < count; ++i) {
      const auto folder = root_ / (i % 2 == 0 ? "even" : "odd");
      std::filesystem::create_directories(folder);
      std::ofstream(folder / (std::to_string(i) + ".jpg"), std::ios::binary)
          << levin::encode_jpeg(made_pixels(kHeight, kWidth), 90);
    }
  }
  ~Photos() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
    std::filesystem::remove_all(root_.string() + "-store", ignored);
  }
  Photos(const Photos&) = delete;
  Photos& operator=(const Photos&) = delete;
  [[nodiscard]] std::string root() const { return root_.string(); }

 private:
  std::filesystem::path root_;
};

constexpr int64_t kStored = 160, kFromStore = 128;

// Images a second of a pass.
Candidate passes(const std::string& name, const std::shared_ptr<levin::DataModule>& data, int64_t wanted) {
  data->setup(levin::Stage::fit);
  return {name, [data, loader = data->train_dataloader(), wanted, epoch = int64_t{0}]() mutable {
            const auto start = std::chrono::steady_clock::now();
            int64_t seen = 0;
            loader->start(epoch++);
            for (levin::Batch batch; loader->next(batch);) seen += batch[0].size(0);
            if (seen != wanted) throw std::runtime_error("a pass gave " + std::to_string(seen) + " images");
            return static_cast<double>(seen) /
                   std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
          }};
}

Candidate of_files(const std::string& name, const std::string& root, int64_t size, int64_t wanted, int64_t workers) {
  const levin::ImageFolderDataOptions options{
      .train = root, .val_fraction = 0, .size = size, .batch_size = kBatchSize, .num_workers = workers};
  return passes(name, std::make_shared<levin::ImageFolderData>(options), wanted);
}

Candidate of_store(const std::string& store, int64_t wanted, int64_t workers) {
  const levin::StreamDataOptions options{.path = store,
                                         .columns = {"image", "label"},
                                         .image_size = kFromStore,
                                         .batch_size = kBatchSize,
                                         .num_workers = workers};
  return passes("Levin", std::make_shared<levin::StreamData>(options), wanted);
}

int run(const Options& options) {
  at::set_num_threads(1);
  const int64_t count = options.quick ? 64 : 1024;
  const Photos photos(count);
  const std::string store = photos.root() + "-store";
  const auto summary =
      levin::pack_images(photos.root(), store, {.size = kStored, .quality = 90, .shard_size = {8 << 20}});
  const auto peer = Peer::start("images", {photos.root(), store});
  Report report("images");
  if (peer != nullptr) report.peers(peer->versions());
  for (const int64_t workers : {1, 2}) {
    const std::string text = std::to_string(workers);
    std::vector<Candidate> candidates = {of_files("Levin", photos.root(), 224, count, workers)};
    if (peer != nullptr) candidates.push_back({"Python's DataLoader", [peer, text] { return peer->round(text); }});
    const auto measurements = interleave(candidates, options);
    report.table("JPEGs of 640x480, " + text + (workers == 1 ? " worker" : " workers"), "images/s", measurements);
    const auto to_python = ratio(measurements, "Levin", "Python's DataLoader");
    if (workers == 2) {
      report.at_least("to_python_2", to_python, 2);
    } else {
      report.number("to_python_1", to_python);
    }
  }
  std::vector<Candidate> candidates = {of_store(store, summary.images, 2),
                                       of_files("Levin, original files", photos.root(), kFromStore, count, 2)};
  if (peer != nullptr) candidates.push_back({"Python's DataLoader", [peer] { return peer->round("2 store"); }});
  const auto measurements = interleave(candidates, options);
  report.table("A store of JPEGs with a shorter side of 160, 2 workers", "images/s", measurements);
  report.at_least("store_to_files", ratio(measurements, "Levin", "Levin, original files"), 2);
  report.at_least("store_to_python", ratio(measurements, "Levin", "Python's DataLoader"), 2);
  report.write();
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  const auto options = read_options(argc, argv, 7);
  return guarded([&] { return run(options); });
}

}  // namespace bench::images
