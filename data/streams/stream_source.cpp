#include "levin/data/streams/stream_source.h"

#include <ATen/ops/tensor.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "levin/core/files/checksum.h"
#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/process/main_guard.h"
#include "levin/core/storage/open_store.h"

namespace levin {

namespace {

constexpr int64_t kUncounted = -1;

// An open shard and its file in the cache.
class CachedShard final : public Shard {
 public:
  CachedShard(std::shared_ptr<const CachedFile> file, std::unique_ptr<Shard> shard)
      : file_(std::move(file)), shard_(std::move(shard)) {}
  [[nodiscard]] int64_t size() const override { return shard_->size(); }
  [[nodiscard]] Batch get(int64_t index) const override { return shard_->get(index); }
  [[nodiscard]] std::string sample_id(int64_t index) const override { return shard_->sample_id(index); }

 private:
  std::shared_ptr<const CachedFile> file_;
  std::unique_ptr<Shard> shard_;
};

// Removes a file at its end; "": none.
struct RemovedFile {
  std::string path;
  explicit RemovedFile(std::string file) : path(std::move(file)) {}
  ~RemovedFile() { (void)::unlink(path.c_str()); }
  RemovedFile(const RemovedFile&) = delete;
  RemovedFile& operator=(const RemovedFile&) = delete;
};

}  // namespace

// One shard.
struct StreamSource::Entry {
  std::mutex mutex;  // held while it is opened: one thread fetches it, the others wait
  std::weak_ptr<const Shard> opened;
  std::shared_ptr<const Shard> kept;  // guarded by the source's mutex
  std::atomic<int64_t> samples = kUncounted;
};

StreamSource::StreamSource(const std::string& url, StreamSourceOptions options)
    : StreamSource(open_store(url), std::move(options)) {}

StreamSource::StreamSource(std::shared_ptr<const ObjectStore> store, StreamSourceOptions options)
    : store_(std::move(store)), options_(std::move(options)), index_(read_stream_index(*store_, options_.stream)) {
  if (index_.shards.empty()) throw DataError("the stream " + url() + " has no shards. Check its path.");
  if (index_.shards.size() > UINT32_MAX) throw DataError("the stream " + url() + " has too many shards.");
  int64_t all = 0;
  bool is_counted = true;
  for (size_t k = 0; k < shards(); ++k) {
    entries_.push_back(std::make_unique<Entry>());
    const std::optional<int64_t> samples = index_.shards[k].samples;
    entries_.back()->samples = samples.value_or(kUncounted);
    is_counted = is_counted && samples;
    all += samples.value_or(0);
  }
  if (is_counted) size_ = all;
  for (size_t k = 0; k < shards() && cache_ == nullptr; ++k) {
    if (!copies(k)) continue;
    const std::string folder = options_.cache.empty() ? default_shard_cache() : options_.cache;
    cache_ = std::make_unique<ShardCache>(folder, static_cast<uint64_t>(options_.cache_size.bytes));
  }
}

StreamSource::~StreamSource() = default;

bool StreamSource::copies(size_t shard) const {
  const ShardInfo& info = index_.shards[shard];
  return store_->local_path(info.key).empty() || !info.compression.empty();
}

// Two data sets, and two versions of one, never share a file.
std::string StreamSource::name_in_cache(size_t shard) const {
  const ShardInfo& info = index_.shards[shard];
  std::string text;
  const auto add = [&](const std::string& part) { text += std::to_string(part.size()) + ":" + part; };
  for (const std::string& part : {store_->url(info.key), info.version, info.compression}) add(part);
  for (const int64_t number : {static_cast<int64_t>(info.bytes), static_cast<int64_t>(info.decompressed_bytes),
                               info.samples.value_or(kUncounted)}) {
    add(std::to_string(number));
  }
  for (const ShardChecksum& each : info.checksums) add(each.checksum.hex);
  return checksum_of(text, Checksum::Kind::sha256);
}

uint64_t StreamSource::bytes_in_cache(size_t shard) const {
  const ShardInfo& info = index_.shards[shard];
  return info.compression.empty() ? info.bytes : info.decompressed_bytes;
}

void StreamSource::fail(size_t shard) const {
  const std::string url = store_->url(index_.shards[shard].key);
  const std::string cause = exception_text(std::current_exception());
  throw DataError(cause.find(url) == std::string::npos ? "the shard " + url + ": " + cause : cause);
}

ShardCache::Make StreamSource::fetching(size_t shard, const std::atomic<bool>* abandoned) const {
  return [this, shard, abandoned](const std::string& path) {
    const ShardInfo& info = index_.shards[shard];
    if (info.compression.empty()) {
      store_->fetch(info.key, path, abandoned);
      return check_shard_file(info, path);
    }
    const std::string local = store_->local_path(info.key);
    const std::string packed = local.empty() ? path + ".packed" : local;
    const RemovedFile removed(local.empty() ? packed : "");
    if (local.empty()) store_->fetch(info.key, packed, abandoned);
    check_shard_file(info, packed);
    decompress_shard(info, packed, path, options_.stream.max_shard_bytes);
  };
}

std::shared_ptr<const Shard> StreamSource::open_file(size_t shard, const std::atomic<bool>* abandoned) {
  if (!copies(shard)) return open_shard(index_, shard, store_->local_path(index_.shards[shard].key));
  auto file = cache_->get(name_in_cache(shard), bytes_in_cache(shard), fetching(shard, abandoned), abandoned);
  auto opened = open_shard(index_, shard, file->path());
  return std::make_shared<const CachedShard>(std::move(file), std::move(opened));
}

std::shared_ptr<const Shard> StreamSource::open(size_t shard, const std::atomic<bool>* abandoned) {
  Entry& entry = *entries_.at(shard);
  const std::lock_guard lock(entry.mutex);
  std::shared_ptr<const Shard> opened = entry.opened.lock();
  if (opened == nullptr) {
    try {
      opened = open_file(shard, abandoned);
      note_samples(shard, opened->size());
    } catch (...) {
      fail(shard);
    }
    entry.opened = opened;
  }
  keep_open(shard, opened);
  return opened;
}

void StreamSource::keep_open(size_t shard, std::shared_ptr<const Shard> opened) {
  std::shared_ptr<const Shard> closed;  // after the lock is released
  const std::lock_guard lock(mutex_);
  if (!open_.empty() && open_.back() == shard) return;
  std::erase(open_, shard);
  open_.push_back(shard);
  entries_[shard]->kept = std::move(opened);
  if (std::ssize(open_) <= std::max<int64_t>(1, options_.open_shards)) return;
  closed = std::exchange(entries_[open_.front()]->kept, nullptr);
  open_.erase(open_.begin());
}

std::optional<int64_t> StreamSource::known_samples(size_t shard) const {
  const int64_t samples = entries_.at(shard)->samples;
  return samples == kUncounted ? std::nullopt : std::optional(samples);
}

int64_t StreamSource::samples(size_t shard, const std::atomic<bool>* abandoned) {
  const std::optional<int64_t> known = known_samples(shard);
  return known ? *known : open(shard, abandoned)->size();
}

at::Tensor StreamSource::counts() {
  const std::lock_guard lock(mutex_);
  if (counts_.defined()) return counts_;
  std::vector<int64_t> all;
  for (const auto& entry : entries_) all.push_back(entry->samples);
  counts_ = at::tensor(all, at::TensorOptions().dtype(at::kLong));
  return counts_;
}

void StreamSource::set_counts(const at::Tensor& counts) {
  if (counts.scalar_type() != at::kLong || counts.dim() != 1 || counts.size(0) != static_cast<int64_t>(shards())) {
    throw DataError("the stream " + url() + ": the saved numbers of samples are not those of its " +
                    count_of(static_cast<int64_t>(shards()), "shard") + ".");
  }
  const at::Tensor all = counts.cpu().contiguous();
  for (size_t k = 0; k < shards(); ++k) {
    const int64_t samples = all.const_data_ptr<int64_t>()[k];
    if (samples >= 0 && entries_[k]->samples == kUncounted) note_samples(k, samples);
  }
}

void StreamSource::note_samples(size_t shard, int64_t samples) {
  const int64_t before = entries_[shard]->samples.exchange(samples);
  if (before == samples) return;
  if (before != kUncounted) {
    entries_[shard]->samples = before;
    throw DataError("it has " + count_of(samples, "sample") + " now, and had " + std::to_string(before) +
                    " when it was counted. Restore the data, or start a new run.");
  }
  const std::lock_guard lock(mutex_);
  counts_ = at::Tensor();
}

bool StreamSource::bring(size_t shard, const std::atomic<bool>* abandoned) {
  if (!copies(shard)) return true;
  try {
    return cache_->bring(name_in_cache(shard), bytes_in_cache(shard), fetching(shard, abandoned));
  } catch (...) {
    fail(shard);
  }
}

}  // namespace levin
