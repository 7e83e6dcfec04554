// The tokens of words that were there before: most words of a text are. A cache belongs to one thread while it encodes
// a text; between two texts it waits in a pool, so that no lock is taken for a word.
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

  /// Appends the tokens of a word; false: it is not known.
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
  /// One that no other thread uses until it is given back.
  [[nodiscard]] std::unique_ptr<WordCache> take();
  /// Of those that take() has returned, each once at most.
  void give_back(std::unique_ptr<WordCache> cache) noexcept;

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<WordCache>> idle_;
  size_t made_ = 0;
};

}  // namespace levin::tokenizers
