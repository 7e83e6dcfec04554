#include "levin/data/sets/mnist.h"

#include <ATen/core/grad_mode.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/data/loading/dataloader.h"
#include "levin/data/loading/stratified.h"
#include "levin/data/sets/augment.h"
#include "levin/data/sets/download.h"
#include "levin/data/sets/idx.h"

namespace levin {

namespace {

std::vector<std::string> image_fields() {
  return {"images", "labels"};
}

constexpr std::array<const char*, 4> kFiles = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                               "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

// MD5s as the archives' authors and torchvision publish them.
constexpr detail::MnistArchive kMnist = {"Mnist",
                                         "mnist",
                                         "",
                                         "https://ossci-datasets.s3.amazonaws.com/mnist/",
                                         {"f68b3c2dcbeaaa9fbdd348bbdeb94873", "d53e105ee54ea40749a09fcbcd1e9432",
                                          "9fb629c4189551a2d022fa330f9573f3", "ec29112dd5afa0611ce80d1b7f02629c"},
                                         0.1307,
                                         0.3081};
constexpr detail::MnistArchive kFashionMnist = {
    "FashionMnist",
    "fashion-mnist",
    "/usr/share/datasets/fashion-mnist",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    {"8d4fb7e6c68d591d4c3dfef9ec88bf0d", "25c81989df183df01b3e8a0aad5dffbe", "bef4ecab320f06d8554ea6380940ec79",
     "bb300cfdad3c16e7a12a480ee83cd310"},
    0.2860,
    0.3530};

// The archive or its decompressed content.
std::optional<std::string> find_archive(const std::string& folder, const std::string& file) {
  for (const std::string& path : {folder + "/" + file + ".gz", folder + "/" + file}) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(path, ignored)) return path;
  }
  return std::nullopt;
}

std::vector<std::string> missing_files(const std::string& folder) {
  std::vector<std::string> missing;
  for (const char* file : kFiles) {
    if (!find_archive(folder, file)) missing.push_back(std::string(file) + ".gz");
  }
  return missing;
}

std::string cache_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (!variable("LEVIN_HOME").empty()) return variable("LEVIN_HOME") + "/datasets/";
  if (!variable("XDG_CACHE_HOME").empty()) return variable("XDG_CACHE_HOME") + "/levin/datasets/";
  if (!variable("HOME").empty()) return variable("HOME") + "/.cache/levin/datasets/";
  throw DataError("no folder to keep data sets in: neither LEVIN_HOME nor HOME is set. Set LEVIN_HOME, or .root.");
}

std::string existing(const std::string& folder, const char* file, const std::string& who) {
  if (const auto path = find_archive(folder, file)) return *path;
  throw DataError(who + ": " + folder + " holds no " + file + ".gz. Set .root to the folder that does, or let " +
                  "prepare_data() download it with .download.");
}

void check_shapes(const at::Tensor& images, const at::Tensor& labels, const std::string& images_path,
                  const std::string& labels_path) {
  const bool good = images.scalar_type() == at::kByte && images.dim() == 3 && images.size(1) == 28 &&
                    images.size(2) == 28 && labels.scalar_type() == at::kByte && labels.dim() == 1;
  if (!good) throw DataError(images_path + " and " + labels_path + ": expected uint8 (n, 28, 28) and uint8 (n).");
  if (images.size(0) != labels.size(0)) {
    throw DataError(images_path + " holds " + count_of(images.size(0), "image") + " but " + labels_path + " holds " +
                    count_of(labels.size(0), "label") + ". Download both again.");
  }
}

}  // namespace

namespace detail {

MnistModule::MnistModule(const MnistArchive& archive, MnistOptions options)
    : archive_(archive), options_(checked(std::move(options), std::string(archive.name) + "Options")) {
  if (options_.flatten && (options_.crop_padding > 0 || options_.flip)) {
    throw ConfigError(std::string(archive.name) + "Options.flatten: must be false with crop_padding or flip, which " +
                      "move pixels of (1, 28, 28) images.");
  }
  check_batching(options_.batching, std::string(archive.name) + "Options.batching", options_.drop_last);
  save_hyperparameters(options_);
}

std::string MnistModule::folder() const {
  if (!options_.root.empty()) return options_.root;
  const std::string system = archive_.system_folder;
  if (!system.empty() && missing_files(system).empty()) return system;
  return cache_folder() + archive_.folder;
}

void MnistModule::prepare_data() {
  const std::string to = folder();
  const std::vector<std::string> missing = missing_files(to);
  if (missing.empty()) return;
  if (!options_.download) {
    throw DataError(std::string(archive_.name) + ": " + to + " holds no " + join(missing) +
                    ". Set .root to the folder that does, or .download.");
  }
  std::string url = options_.url.empty() ? archive_.url : options_.url;
  if (!url.ends_with('/')) url += '/';
  for (size_t i = 0; i < kFiles.size(); ++i) {
    if (find_archive(to, kFiles[i])) continue;
    const std::string file = std::string(kFiles[i]) + ".gz";
    download(url + file, to + "/" + file, {.checksum = {Checksum::Kind::md5, archive_.md5[i]}});
  }
}

void MnistModule::setup(Stage stage) {
  const bool fits = stage == Stage::fit || stage == Stage::validate;
  if (!fits && test_ == nullptr) test_ = read(false);
  if (!fits || train_ != nullptr) return;
  train_ = read(true);
  const int64_t all = train_->size();
  if (options_.val_size == 0) return;
  if (options_.val_size >= all) {
    throw DataError(std::string(archive_.name) + "Options.val_size: must be below the " + std::to_string(all) +
                    " training images, got " + std::to_string(options_.val_size) + ".");
  }
  const Split split = random_split(all, options_.val_size, static_cast<uint64_t>(options_.split_seed),
                                   options_.stratified_split ? train_->tensors()[1] : at::Tensor());
  const auto part = [&](const at::Tensor& rows) {
    const at::Tensor indices = std::get<0>(rows.sort());  // memory in the file's order
    return std::make_shared<TensorDataset>(train_->get_batch(indices).tensors, image_fields());
  };
  val_ = part(split.held_out);
  train_ = part(split.train);
}

void MnistModule::teardown(Stage stage) {
  if (stage == Stage::test || stage == Stage::predict) {
    test_ = nullptr;
  } else {
    train_ = val_ = nullptr;
  }
}

// Images are turned into float32 once. Kept as uint8 they would take a quarter of the memory (47 of 188 MB), but every
// batch would pay for a conversion: a shuffled batch of 64 took 61 us instead of 38 us (one run, one thread, a busy
// 2-core machine), and sequential batches could not be views (4 us).
std::shared_ptr<TensorDataset> MnistModule::read(bool train) const {
  const at::NoGradGuard no_grad;
  const std::string images_path = existing(folder(), kFiles[train ? 0 : 2], archive_.name);
  const std::string labels_path = existing(folder(), kFiles[train ? 1 : 3], archive_.name);
  const at::Tensor pixels = read_idx(images_path);  // (n, 28, 28) uint8
  const at::Tensor labels = read_idx(labels_path);  // (n) uint8
  check_shapes(pixels, labels, images_path, labels_path);
  at::Tensor images = pixels.to(at::kFloat).div_(255);
  if (options_.normalize) images.sub_(archive_.mean).div_(archive_.deviation);
  images = options_.flatten ? images.flatten(1) : images.unsqueeze(1);
  return std::make_shared<TensorDataset>(std::vector<at::Tensor>{images, labels.to(at::kLong)}, image_fields());
}

std::shared_ptr<Loader> MnistModule::train_dataloader() {
  if (train_ == nullptr)
    throw DataError(std::string(archive_.name) + ": call setup(Stage::fit) before train_dataloader().");
  return batched_loader({augmented(), {}, train_->tensors()[1]},
                        {.batch_size = options_.batch_size,
                         .shuffle = options_.shuffle,
                         .drop_last = options_.drop_last,
                         .num_workers = options_.num_workers},
                        options_.batching);
}

std::shared_ptr<Dataset> MnistModule::augmented() const {
  if (options_.crop_padding == 0 && !options_.flip) return train_;
  const double black = options_.normalize ? -archive_.mean / archive_.deviation : 0;
  return std::make_shared<AugmentedImages>(
      train_, AugmentOptions{.crop_padding = options_.crop_padding, .flip = options_.flip, .fill = black});
}

Loaders MnistModule::in_order(const std::shared_ptr<TensorDataset>& images, const char* hook) const {
  if (images == nullptr)
    throw DataError(std::string(archive_.name) + ": call setup() of the stage before " + hook + "().");
  return std::make_shared<DataLoader>(
      images, DataLoaderOptions{.batch_size = options_.batch_size, .num_workers = options_.num_workers});
}

Loaders MnistModule::val_dataloader() {
  if (options_.val_size == 0) return {};
  return in_order(val_, "val_dataloader");
}

Loaders MnistModule::test_dataloader() {
  return in_order(test_, "test_dataloader");
}

}  // namespace detail

Mnist::Mnist(MnistOptions options) : MnistModule(kMnist, std::move(options)) {}

FashionMnist::FashionMnist(MnistOptions options) : MnistModule(kFashionMnist, std::move(options)) {}

const std::vector<std::string>& FashionMnist::class_names() {
  static const std::vector<std::string> names = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                                 "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
  return names;
}

}  // namespace levin
