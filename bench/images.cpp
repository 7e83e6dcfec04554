// Measures loading of images from a folder: 640 x 480 JPEGs, a random part of each resized to 224 x 224, mirrored or
// not, and normalised, in shuffled batches of 64 by two workers; by Levin's ImageFolderData and by Python's DataLoader
// over torchvision's ImageFolder with the same transforms (peers/images.py). Both read the same files, from memory
// after the first round. Workers are started before what is timed.
#include <torch/torch.h>
#include <unistd.h>
// jpeglib.h needs it.
#include <cstdio>
// clang-format off
#include <jpeglib.h>
// clang-format on

#include <chrono>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "levin/data/sets/image_folder_data.h"
#include "peer.h"
#include "rounds.h"

namespace bench::images {

namespace {

constexpr int64_t kBatchSize = 64;
constexpr int kHeight = 480, kWidth = 640;

// An image with as much detail as a photograph, about 100 KB at quality 90: coarse shapes, finer ones and noise.
at::Tensor made_pixels() {
  at::Tensor sum = torch::zeros({1, 3, kHeight, kWidth});
  const std::vector<int64_t> options = {kHeight, kWidth};
  for (const auto& [cells, strength] : {std::pair{5, 120.0}, std::pair{40, 60.0}, std::pair{240, 25.0}}) {
    const at::Tensor coarse = torch::rand({1, 3, 3 * cells / 4 + 1, cells}).sub_(0.5);
    sum += torch::upsample_bicubic2d(coarse, options, false).mul_(strength);
  }
  return sum.add_(128).clamp_(0, 255).to(torch::kByte)[0].permute({1, 2, 0}).contiguous();  // (height, width, 3)
}

void write_jpeg(const std::filesystem::path& path, const at::Tensor& pixels) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) throw std::runtime_error("cannot write " + path.string());
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  jpeg_stdio_dest(&info, file);
  info.image_width = kWidth;
  info.image_height = kHeight;
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 90, TRUE);
  jpeg_start_compress(&info, TRUE);
  auto* row = pixels.data_ptr<uint8_t>();
  for (int y = 0; y < kHeight; ++y, row += 3 * kWidth) jpeg_write_scanlines(&info, &row, 1);
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::fclose(file);
}

/// Two classes of images in a folder of its own, removed with the object.
class Photos {
 public:
  explicit Photos(int64_t count)
      : root_(std::filesystem::temp_directory_path() / ("levin-bench-" + std::to_string(::getpid()))) {
    torch::manual_seed(0);
    for (int64_t i = 0; i < count; ++i) {
      const auto folder = root_ / (i % 2 == 0 ? "even" : "odd");
      std::filesystem::create_directories(folder);
      write_jpeg(folder / (std::to_string(i) + ".jpg"), made_pixels());
    }
  }
  ~Photos() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  Photos(const Photos&) = delete;
  Photos& operator=(const Photos&) = delete;
  [[nodiscard]] std::string root() const { return root_.string(); }

 private:
  std::filesystem::path root_;
};

Candidate levin_images(const std::string& root, int64_t wanted, int64_t workers) {
  auto data = std::make_shared<levin::ImageFolderData>(levin::ImageFolderDataOptions{
      .train = root, .val_fraction = 0, .batch_size = kBatchSize, .num_workers = workers});
  data->setup(levin::Stage::fit);
  return {"Levin", [data, loader = data->train_dataloader(), wanted, epoch = int64_t{0}]() mutable {
            const auto start = std::chrono::steady_clock::now();
            int64_t seen = 0;
            loader->start(epoch++);
            for (levin::Batch batch; loader->next(batch);) seen += batch[0].size(0);
            if (seen != wanted) throw std::runtime_error("a pass gave " + std::to_string(seen) + " images");
            return static_cast<double>(seen) /
                   std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
          }};
}

int run(const Options& options) {
  at::set_num_threads(1);
  const int64_t count = options.quick ? 64 : 1024;
  const Photos photos(count);
  const auto peer = Peer::start("images", {photos.root()});
  Report report("images");
  if (peer != nullptr) report.peers(peer->versions());
  for (const int64_t workers : {1, 2}) {
    const std::string text = std::to_string(workers);
    std::vector<Candidate> candidates = {levin_images(photos.root(), count, workers)};
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
  report.write();
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  const auto options = read_options(argc, argv, 7);
  return guarded([&] { return run(options); });
}

}  // namespace bench::images
