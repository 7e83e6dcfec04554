#include "levin/data/streams/stream_data.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>

#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/options/registry.h"
#include "levin/data/loading/sample_generator.h"
#include "levin/data/sets/image_folder.h"

namespace levin {

namespace {

// Numbers with a fraction in the type that the run computes with.
Batch in_type(Batch sample, at::ScalarType type) {
  for (at::Tensor& tensor : sample.tensors) {
    if (tensor.is_floating_point()) tensor = tensor.to(type);
  }
  return sample;
}

// The image of a sample in its final size, and what follows it; training draws a part of the image and whether it is
// mirrored.
class ImageSample {
 public:
  ImageSample(const StreamDataOptions& options, bool is_training)
      : size_{options.image_size, options.image_size},
        range_{.min_scale = options.min_scale},
        is_training_(is_training),
        flips_(is_training && options.flip) {}

  Batch operator()(Batch sample) const {
    const at::Tensor& image = first_image(sample);
    const ImageSize whole{image.size(1), image.size(2)};
    std::vector<at::Tensor> tensors{is_training_ ? random_part(image, whole) : middle(image, whole)};
    if (sample.count() > 1) tensors.push_back(sample[1]);
    if (!flips_) return Batch(std::move(tensors));
    if (tensors.size() == 1) tensors.push_back(at::tensor(int64_t{0}));
    tensors.push_back(at::rand({}, sample_generator()).lt(0.5));
    return Batch(std::move(tensors));
  }

 private:
  static const at::Tensor& first_image(const Batch& sample) {
    if (sample.count() > 0 && sample[0].dim() == 3 && sample[0].size(0) == 3 && sample[0].scalar_type() == at::kByte) {
      return sample[0];
    }
    throw DataError("image_size is set, and the first column is not an image. Name its column first in columns.");
  }

  [[nodiscard]] at::Tensor random_part(const at::Tensor& image, const ImageSize& whole) const {
    const ImageBox box = random_crop_box(whole, range_, sample_generator());
    return resize_images(image.narrow(1, box.top, box.height).narrow(2, box.left, box.width), size_);
  }

  [[nodiscard]] at::Tensor middle(const at::Tensor& image, const ImageSize& whole) const {
    return center_crop(resize_images(image, size_with_shorter_side(whole, size_.height)), size_);
  }

  ImageSize size_;
  RandomCropRange range_;
  bool is_training_;
  bool flips_;
};

}  // namespace

StreamData::StreamData(StreamDataOptions options) : options_(checked(std::move(options), "StreamDataOptions")) {
  save_hyperparameters(options_);
}

std::shared_ptr<StreamSource> StreamData::open(const std::string& path) const {
  if (path.empty()) return nullptr;
  StreamSourceOptions options;
  options.stream.format = options_.format;
  options.stream.pattern = options_.pattern;
  options.stream.fields = options_.columns;
  options.stream.block_size = options_.block_size;
  options.cache = options_.cache;
  options.cache_size = options_.cache_size;
  options.open_shards = std::max<int64_t>(64, 2 * options_.shuffle_shards);
  return std::make_shared<StreamSource>(path, options);
}

void StreamData::setup(Stage stage) {
  is_set_up_ = true;
  if (stage == Stage::test || stage == Stage::predict) {
    if (test_ == nullptr) test_ = open(options_.test_path);
    return;
  }
  if (val_ == nullptr) val_ = open(options_.val_path);
  if (stage == Stage::fit && train_ == nullptr) train_ = open(options_.path);
}

std::shared_ptr<Loader> StreamData::loader(const std::shared_ptr<StreamSource>& source, bool is_training) const {
  if (!is_set_up_) throw DataError("StreamData: call setup() with the stage before asking for its loaders.");
  if (source == nullptr) return nullptr;
  const StreamLoaderOptions options{.batch_size = options_.batch_size,
                                    .shuffle = is_training && options_.shuffle,
                                    .shuffle_shards = options_.shuffle_shards,
                                    .drop_last = is_training && options_.drop_last,
                                    .num_workers = options_.num_workers,
                                    .prefetch_shards = options_.prefetch_shards,
                                    .fetch_threads = options_.fetch_threads};
  if (options_.image_size == 0) {
    return std::make_shared<StreamLoader>(
        source, options, [type = float_dtype()](Batch sample) { return in_type(std::move(sample), type); });
  }
  return std::make_shared<StreamLoader>(source, options, ImageSample(options_, is_training),
                                        image_collate(colour_scale(options_.mean, options_.std)));
}

std::shared_ptr<Loader> StreamData::train_dataloader() {
  return loader(train_, true);
}

Loaders StreamData::val_dataloader() {
  return loader(val_, false);
}

Loaders StreamData::test_dataloader() {
  return loader(test_, false);
}

}  // namespace levin
