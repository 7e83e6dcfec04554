#include "levin/data/sets/image_folder_data.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/data/loading/dataloader.h"
#include "levin/data/loading/sampler.h"
#include "levin/data/loading/stratified.h"

namespace levin {

ImageFolderData::ImageFolderData(ImageFolderDataOptions options)
    : options_(checked(std::move(options), "ImageFolderDataOptions")) {
  if (options_.resize < options_.size) {
    throw ConfigError("ImageFolderDataOptions.resize: must be at least size, " + std::to_string(options_.size) +
                      ", which is cut out of the resized image; got " + std::to_string(options_.resize) + ".");
  }
  save_hyperparameters(options_);
}

std::shared_ptr<ImageFolder> ImageFolderData::folder(const std::string& root, bool augmented,
                                                     bool needs_classes) const {
  ImageFolderOptions options{.classes = classes_,
                             .flip = augmented && options_.flip,
                             .on_error = options_.on_error,
                             .needs_classes = needs_classes};
  options.view = {.crop = augmented ? ImageCrop::random : ImageCrop::center,
                  .size = options_.size,
                  .shorter_side = options_.resize,
                  .range = {.min_scale = options_.min_scale},
                  .scaled_decoding = options_.scaled_decoding,
                  .max_pixels = options_.max_pixels};
  return std::make_shared<ImageFolder>(root, std::move(options));
}

void ImageFolderData::setup(Stage stage) {
  predicts_ = stage == Stage::predict;
  if (predicts_) return;
  if (stage == Stage::test) {
    if (options_.test.empty() || test_ != nullptr) return;
    if (classes_.empty()) classes_ = folder(options_.train, true)->classes();  // numbered as in training
    test_ = folder(options_.test, false);
    return;
  }
  if (train_ != nullptr) return;
  train_ = folder(options_.train, true);
  classes_ = train_->classes();
  if (!options_.val.empty()) {
    val_ = folder(options_.val, false);
    return;
  }
  const int64_t all = train_->size();
  const auto held_out = static_cast<int64_t>(std::floor(static_cast<double>(all) * options_.val_fraction));
  const Split split = random_split(all, held_out, static_cast<uint64_t>(options_.split_seed), {}, !options_.shuffle);
  train_rows_ = split.train;
  if (held_out == 0) return;
  val_rows_ = split.held_out;
  val_ = folder(options_.train, false);
}

void ImageFolderData::teardown(Stage /*stage*/) {
  for (auto* images : {&train_, &val_, &test_}) {
    const int64_t skipped = *images == nullptr ? 0 : (*images)->skipped();
    if (skipped > 0) {
      Console::instance().warn("ImageFolderData: " + count_of(skipped, "image") + " of " +
                               std::to_string((*images)->size()) +
                               " could not be read and were left out; run.log names the first of them.");
    }
    *images = nullptr;
  }
  train_rows_ = val_rows_ = at::Tensor();
}

// Without a checkpoint that has them, the sub-folders of the training folder, if it is there.
const std::vector<std::string>& ImageFolderData::known_classes() const {
  std::error_code ignored;
  if (classes_.empty() && predicts_ && std::filesystem::exists(options_.train, ignored)) {
    classes_ = folder(options_.train, true)->classes();
  }
  return classes_;
}

std::vector<std::string> ImageFolderData::label_names() const {
  return known_classes();
}

State ImageFolderData::state_dict() const {
  State state;
  if (!classes_.empty()) state.set("classes", classes_);
  return state;
}

// Labels that were read have the numbers of their own folder's classes.
void ImageFolderData::load_state_dict(const State& saved) {
  if (!predicts_ || !saved.has("classes")) return;
  classes_ = saved.get<std::vector<std::string>>("classes");
  test_ = nullptr;
}

const std::vector<std::string>& ImageFolderData::classes() const {
  if (known_classes().empty()) throw DataError("ImageFolderData: call setup() before classes().");
  return classes_;
}

std::shared_ptr<Loader> ImageFolderData::loader(const std::shared_ptr<ImageFolder>& images, const at::Tensor& rows,
                                                bool is_training) const {
  if (images == nullptr) throw DataError("ImageFolderData: call setup() with the stage before asking for its loaders.");
  const bool shuffle = is_training && options_.shuffle;
  const DataLoaderOptions options{.batch_size = options_.batch_size,
                                  .shuffle = shuffle && !rows.defined(),
                                  .drop_last = is_training && options_.drop_last,
                                  .num_workers = options_.num_workers};
  const auto sampler = rows.defined() ? std::make_shared<SubsetSampler>(rows, shuffle) : nullptr;
  return std::make_shared<DataLoader>(images, options, sampler,
                                      image_collate(colour_scale(options_.mean, options_.std)));
}

std::shared_ptr<Loader> ImageFolderData::train_dataloader() {
  return loader(train_, train_rows_, true);
}

Loaders ImageFolderData::val_dataloader() {
  if (train_ != nullptr && val_ == nullptr) return {};
  return loader(val_, val_rows_, false);
}

Loaders ImageFolderData::test_dataloader() {
  if (options_.test.empty()) return {};
  return loader(test_, {}, false);
}

Loaders ImageFolderData::predict_dataloader() {
  if (!predicts_ || options_.test.empty()) return test_dataloader();
  if (test_ == nullptr) {
    if (known_classes().empty()) {
      detail::warn_of_unknown_classes("ImageFolderData", options_.train);
    }
    test_ = folder(options_.test, false, /*needs_classes=*/false);
  }
  return test_dataloader();
}

}  // namespace levin
