#include "levin/data/streams/stream_data.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "levin/core/files/json_depth.h"
#include "levin/core/options/error.h"
#include "levin/core/options/registry.h"
#include "levin/data/loading/sample_generator.h"
#include "levin/data/sets/image_folder.h"
#include "levin/data/streams/pack_images.h"

namespace levin {

namespace {

// Numbers with a fraction in the type that the run computes with.
Batch in_type(Batch sample, at::ScalarType type) {
  for (at::Tensor& tensor : sample.tensors) {
    if (tensor.is_floating_point()) tensor = tensor.to(type);
  }
  return sample;
}

// How an image becomes one of the size that the model takes: training draws a part of it.
ImageView image_view(const StreamDataOptions& options, bool is_training) {
  if (options.image_size == 0) return {};
  return {.crop = is_training ? ImageCrop::random : ImageCrop::center,
          .size = options.image_size,
          .shorter_side = options.image_size,
          .range = {.min_scale = options.min_scale}};
}

// The image of a sample and its class; training draws whether it is mirrored.
class ImageSample {
 public:
  explicit ImageSample(bool flips) : flips_(flips) {}

  Batch operator()(const Batch& sample) const {
    const bool is_image =
        sample.count() > 0 && sample[0].dim() == 3 && sample[0].size(0) == 3 && sample[0].scalar_type() == at::kByte;
    if (!is_image) {
      throw DataError("image_size is set, and the first column is not an image. Name its column first in columns.");
    }
    std::vector<at::Tensor> tensors{sample[0]};
    if (sample.count() > 1) tensors.push_back(sample[1]);
    if (!flips_) return Batch(std::move(tensors));
    if (tensors.size() == 1) tensors.push_back(at::tensor(int64_t{0}));
    tensors.push_back(at::rand({}, sample_generator()).lt(0.5));
    return Batch(std::move(tensors));
  }

 private:
  bool flips_;
};

constexpr uint64_t kMaxClassesBytes = 64 << 20;

// The names in {"label": ["cat", "dog"]}; none without the file.
std::vector<std::string> class_names(const ObjectStore& store) {
  const auto file = store.find(kClassesFile);
  if (!file) return {};
  // Until a pack has replaced the index, there is the data set that it replaces.
  const bool is_new =
      store.find(kUnfinishedPack) &&
      store.read("index.json").find("\"" + trimmed(store.read(kUnfinishedPack)) + ".") != std::string::npos;
  if (is_new) {
    throw DataError(store.url() +
                    ": images are being packed into it, or a pack was interrupted. Wait for its end, or "
                    "pack them again.");
  }
  try {
    if (file->size > kMaxClassesBytes) throw DataError("it is larger than 64 MiB");
    const nlohmann::json columns = parse_json(store.read(kClassesFile));
    if (!columns.is_object() || columns.size() != 1) throw DataError("it does not have one column");
    return columns.begin()->get<std::vector<std::string>>();
  } catch (const StorageError&) {
    throw;
  } catch (const std::exception& error) {
    throw DataError(store.url(kClassesFile) +
                    ": expected {\"label\": [\"cat\", \"dog\"]}, the names of the classes by "
                    "their column: " +
                    error.what() + ". Correct it, or remove it to train without names.");
  }
}

}  // namespace

StreamData::StreamData(StreamDataOptions options) : options_(checked(std::move(options), "StreamDataOptions")) {
  save_hyperparameters(options_);
}

std::shared_ptr<StreamSource> StreamData::open(const std::string& path, bool is_training) {
  if (path.empty()) return nullptr;
  StreamSourceOptions options;
  options.stream.format = options_.format;
  options.stream.pattern = options_.pattern;
  options.stream.fields = options_.columns;
  options.stream.block_size = options_.block_size;
  options.stream.image = image_view(options_, is_training);
  options.cache = options_.cache;
  options.cache_size = options_.cache_size;
  options.open_shards = std::max<int64_t>(64, 2 * options_.shuffle_shards);
  auto source = std::make_shared<StreamSource>(path, options);
  if (predicts_ && !classes_.empty()) return source;  // the model predicts classes of its training data
  const std::vector<std::string> classes = class_names(source->store());
  if (classes_.empty()) classes_ = classes;
  if (!classes.empty() && classes != classes_) {
    throw DataError(source->store().url(kClassesFile) + " has the classes " + join(classes) +
                    ", and the data before it " + join(classes_) +
                    ", so that a number means different classes. Pack both with the same sub-folders.");
  }
  return source;
}

void StreamData::setup(Stage stage) {
  is_set_up_ = true;
  predicts_ = stage == Stage::predict;
  if (stage == Stage::test || stage == Stage::predict) {
    if (test_ == nullptr) test_ = open(options_.test_path, false);
    return;
  }
  if (stage == Stage::fit && train_ == nullptr) train_ = open(options_.path, true);
  if (val_ == nullptr) val_ = open(options_.val_path, false);
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
  return std::make_shared<StreamLoader>(source, options, ImageSample(is_training && options_.flip),
                                        image_collate(colour_scale(options_.mean, options_.std)));
}

State StreamData::state_dict() const {
  State state;
  if (!classes_.empty()) state.set("classes", classes_);
  return state;
}

// Labels that were read have the numbers of their own data set's classes.
void StreamData::load_state_dict(const State& saved) {
  if (predicts_ && saved.has("classes")) classes_ = saved.get<std::vector<std::string>>("classes");
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
