// A data set in shards as data for training, from YAML alone.
//
//   data:
//     class_path: StreamData
//     init_args: {path: "s3://bucket/train", val_path: "s3://bucket/val", columns: [image, label], image_size: 224}
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/core/options/units.h"
#include "levin/data/data_module.h"
#include "levin/data/images/image_transforms.h"
#include "levin/data/streams/stream_index.h"
#include "levin/data/streams/stream_loader.h"

namespace levin {

/// Options of StreamData.
struct StreamDataOptions {
  std::string path = "";       // to train on: a folder, http(s)://…, s3://bucket/prefix
  std::string val_path = "";   // "": no validation
  std::string test_path = "";  // of the test and predict stages
  EnumOption<StreamFormat> format = StreamFormat::automatic;
  std::string pattern = "";               // of the shards' names below the paths; "": all
  std::vector<std::string> columns = {};  // of a sample, in the order of the batch's tensors; none: all
  int64_t block_size = 0;                 // tokens of a sample, for LitData's tokens
  int64_t image_size = 0;                 // height and width in pixels of the first column, an image; 0: its own size
  double min_scale = 0.08;                // training: the smallest part of an image, as a share of its area
  bool flip = true;                       // training: mirror every second image
  std::vector<double> mean = {0.485, 0.456, 0.406};  // of red, green and blue from 0 to 1: ImageNet's
  std::vector<double> std = {0.229, 0.224, 0.225};
  int64_t batch_size = 32;
  bool shuffle = true;
  int64_t shuffle_shards = 8;
  bool drop_last = false;
  int64_t num_workers = 2;
  int64_t prefetch_shards = 8;
  int64_t fetch_threads = 4;
  std::string cache = "";  // a folder of this machine for copies of shards; "": ~/.cache/levin/streams
  ByteSize cache_size = {kShardCacheBytes};
  template <class = void>
  static auto fields() {
    using O = StreamDataOptions;
    return levin::fields(
        field("path", &O::path, "the shards to train on: a folder, http(s)://host/path or s3://bucket/prefix")
            .not_empty()
            .ranks_may_differ(),
        field("val_path", &O::val_path, "to validate on; \"\": nothing").ranks_may_differ(),
        field("test_path", &O::test_path, "to test and predict on; \"\": nothing").ranks_may_differ(),
        field("format", &O::format, "mds, litdata, webdataset or jsonl; automatic: as index.json or the names say"),
        field("pattern", &O::pattern, "names of the shards, such as data-{000..099}.tar; \"\": all"),
        field("columns", &O::columns, "of a sample, in the order of the batch's tensors; none: all"),
        field("block_size", &O::block_size, "tokens of a sample, for LitData's tokens").min(0),
        field("image_size", &O::image_size, "height and width in pixels of the first column, an image; 0: its own size")
            .min(0),
        detail::image_fields<O>(), field("batch_size", &O::batch_size, "samples of a batch").min(1),
        field("shuffle", &O::shuffle, "a new order of shards and samples for every epoch"),
        field("shuffle_shards", &O::shuffle_shards, "shards whose samples are shuffled together").min(1).max(65536),
        field("drop_last", &O::drop_last, "leave out an incomplete last training batch"),
        field("num_workers", &O::num_workers, "threads that make batches ahead").min(0).max(1024).ranks_may_differ(),
        field("prefetch_shards", &O::prefetch_shards, "shards that are fetched ahead")
            .min(0)
            .max(65536)
            .ranks_may_differ(),
        field("fetch_threads", &O::fetch_threads, "shards that are fetched at once").min(1).max(256).ranks_may_differ(),
        field("cache", &O::cache, "a folder of this machine for copies of shards; \"\": ~/.cache/levin/streams")
            .ranks_may_differ(),
        field("cache_size", &O::cache_size, "of all copies in that folder").ranks_may_differ());
  }
};

/// The samples of data sets in shards. Batches have the columns by name and in their order, numbers with a fraction as
/// float32, or float64 under 64-true; with image_size the first is
/// x (batch, 3, image_size, image_size) float32 and the second, if there is one, a class. setup() throws DataError
/// naming the URL, also if two of the data sets name other classes.
class StreamData final : public DataModule {
 public:
  using Options = StreamDataOptions;
  explicit StreamData(StreamDataOptions options);

  void setup(Stage stage) override;
  std::shared_ptr<Loader> train_dataloader() override;
  Loaders val_dataloader() override;
  Loaders test_dataloader() override;
  Loaders predict_dataloader() override { return test_dataloader(); }
  /// Returns the names of the classes, from classes.json beside the shards (which `levin pack` writes) or a checkpoint.
  [[nodiscard]] std::vector<std::string> label_names() const override { return classes_; }
  /// The class names.
  [[nodiscard]] State state_dict() const override;
  void load_state_dict(const State& saved) override;

 private:
  [[nodiscard]] std::shared_ptr<StreamSource> open(const std::string& path, bool is_training);
  [[nodiscard]] std::shared_ptr<Loader> loader(const std::shared_ptr<StreamSource>& source, bool is_training) const;

  StreamDataOptions options_;
  std::vector<std::string> classes_ = {};  // none: unknown
  bool predicts_ = false;
  std::shared_ptr<StreamSource> train_ = nullptr;
  std::shared_ptr<StreamSource> val_ = nullptr;
  std::shared_ptr<StreamSource> test_ = nullptr;
  bool is_set_up_ = false;
};

}  // namespace levin
