#include "levin/data/tokenizers/word_cache.h"

#include <cstring>

namespace levin::tokenizers {

namespace {

constexpr size_t kPlaces = size_t{1} << 16;
constexpr size_t kMaxWords = kPlaces / 2;

// Eight bytes at a time, mixed by a multiplication and a shift. Hostile words may collide: they are compared.
uint64_t hash_of(std::string_view word) {
  constexpr uint64_t kFactor = 0x9e3779b97f4a7c15ULL;
  uint64_t hash = word.size() * kFactor;
  const auto mix = [&](uint64_t bytes) {
    hash = (hash ^ bytes) * kFactor;
    hash ^= hash >> 32;
  };
  size_t at = 0;
  for (; at + 8 <= word.size(); at += 8) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, word.data() + at, 8);
    mix(bytes);
  }
  uint64_t rest = 0;
  std::memcpy(&rest, word.data() + at, word.size() - at);
  mix(rest + 1);
  return hash;
}

}  // namespace

WordCache::WordCache() : entries_(kPlaces) {}

bool WordCache::find(std::string_view word, std::vector<int32_t>& ids) {
  hash_ = hash_of(word);
  for (place_ = hash_ % kPlaces;; place_ = (place_ + 1) % kPlaces) {
    const Entry& entry = entries_[place_];
    if (entry.is_used == 0) return false;
    if (entry.hash != hash_ || std::string_view(words_).substr(entry.word, entry.word_size) != word) continue;
    ids.insert(ids.end(), ids_.begin() + entry.ids, ids_.begin() + entry.ids + entry.count);
    return true;
  }
}

void WordCache::keep(std::string_view word, std::span<const int32_t> ids) {
  if (word.size() > longest || ids.size() > UINT16_MAX) return;
  if (used_ == kMaxWords) {
    forget_all();
    place_ = hash_ % kPlaces;
  }
  entries_[place_] = {hash_,
                      static_cast<uint32_t>(words_.size()),
                      static_cast<uint32_t>(ids_.size()),
                      static_cast<uint16_t>(word.size()),
                      static_cast<uint16_t>(ids.size()),
                      1};
  words_ += word;
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  ++used_;
}

void WordCache::forget_all() {
  entries_.assign(kPlaces, Entry());
  words_.clear();
  ids_.clear();
  used_ = 0;
}

std::unique_ptr<WordCache> WordCachePool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto cache = std::move(idle_.back());
      idle_.pop_back();
      return cache;
    }
    idle_.reserve(++made_);  // so that giving one back allocates nothing
  }
  return std::make_unique<WordCache>();
}

void WordCachePool::give_back(std::unique_ptr<WordCache> cache) noexcept {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(cache));
}

}  // namespace levin::tokenizers
