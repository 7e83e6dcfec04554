// Caches the tokens of words, because most words repeat. A cache belongs to one thread while that thread encodes, and
// waits in a pool in between, so that no word needs a lock.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace levin::tokenizers {

class WordCache {
 public:
  WordCache();
  static constexpr size_t longest = 128;  // bytes of a word that is kept

  /// Appends the tokens of a word; returns false if the word is unknown.
  bool find(std::string_view word, std::vector<int32_t>& ids);
  /// Keeps the tokens of the word for which find() has just returned false.
  void keep(std::string_view word, std::span<const int32_t> ids);

 private:
  struct Entry {
    uint64_t hash = 0;
    uint32_t word = 0;  // in words_
    uint32_t ids = 0;   // in ids_
    uint16_t word_size = 0;
    uint16_t count = 0;
    uint32_t is_used = 0;
  };
  void forget_all();

  std::vector<Entry> entries_;  // open addressing
  size_t used_ = 0;
  std::string words_;
  std::vector<int32_t> ids_;
  uint64_t hash_ = 0;  // of the last word that was looked for
  size_t place_ = 0;
};

class WordCachePool {
 public:
  /// Returns a cache that no other thread uses until it is given back.
  [[nodiscard]] std::unique_ptr<WordCache> take();
  /// Takes back a cache that take() returned; at most once each.
  void give_back(std::unique_ptr<WordCache> cache) noexcept;

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<WordCache>> idle_;
  size_t made_ = 0;
};

}  // namespace levin::tokenizers
