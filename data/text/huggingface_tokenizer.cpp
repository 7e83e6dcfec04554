#include "levin/data/text/huggingface_tokenizer.h"

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "levin/core/files/files.h"
#include "levin/core/files/json_depth.h"
#include "levin/core/options/error.h"
#include "levin/data/tokenizers/added_tokens.h"
#include "levin/data/tokenizers/byte_characters.h"
#include "levin/data/tokenizers/decoder.h"
#include "levin/data/tokenizers/post_processor.h"
#include "levin/data/tokenizers/pre_tokenizer.h"
#include "levin/data/tokenizers/unicode.h"
#include "levin/data/tokenizers/word_cache.h"

namespace levin {

namespace {

constexpr uint64_t kMaxJsonBytes = uint64_t{256} << 20;

std::string read_json_file(const std::string& path) {
  try {
    return read_file(path, kMaxJsonBytes);
  } catch (const Error& error) {
    throw DataError(error.what());
  }
}

std::string file_in(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? (std::filesystem::path(path) / "tokenizer.json").string()
                                                      : path;
}

// A cache for one call, given back at its end.
class BorrowedCache {
 public:
  explicit BorrowedCache(tokenizers::WordCachePool& pool) : pool_(pool), cache_(pool.take()) {}
  ~BorrowedCache() { pool_.give_back(std::move(cache_)); }
  BorrowedCache(const BorrowedCache&) = delete;
  BorrowedCache& operator=(const BorrowedCache&) = delete;
  tokenizers::WordCache* operator->() { return cache_.get(); }

 private:
  tokenizers::WordCachePool& pool_;
  std::unique_ptr<tokenizers::WordCache> cache_;
};

}  // namespace

struct HuggingFaceTokenizer::Parts {
  std::unique_ptr<const tokenizers::Normalizer> normalizer;
  std::unique_ptr<const tokenizers::PreTokenizer> pre_tokenizer;
  std::unique_ptr<const tokenizers::TokenModel> model;
  std::unique_ptr<const tokenizers::PostProcessor> post_processor;
  std::unique_ptr<const tokenizers::Decoder> decoder;
  tokenizers::AddedTokens added;
  std::optional<tokenizers::Truncation> truncation;
  std::optional<tokenizers::PaddingRule> padding;
  std::optional<bool> cuts_left;  // by tokenizer_config.json
  tokenizers::WordCachePool caches;
};

HuggingFaceTokenizer::HuggingFaceTokenizer(const std::string& path)
    : HuggingFaceTokenizer(read_json_file(file_in(path)), file_in(path)) {
  read_names(std::filesystem::path(path_).parent_path().string());
}

HuggingFaceTokenizer::HuggingFaceTokenizer(const std::string& json, const std::string& path)
    : path_(path), parts_(std::make_unique<Parts>()) {
  read(json);
}

HuggingFaceTokenizer::~HuggingFaceTokenizer() = default;

void HuggingFaceTokenizer::read(const std::string& json) {
  if (json_nests_deeper(json)) {
    throw DataError(path_ + ": expected the JSON of a tokenizer, saw one with more than " +
                    std::to_string(kMaxJsonNesting) + " lists and objects within each other. The file is damaged.");
  }
  nlohmann::json tree;
  try {
    tree = nlohmann::json::parse(json);
  } catch (const nlohmann::json::exception& error) {
    throw DataError(path_ + ": expected the JSON of a tokenizer: " + cut_text(error.what(), 200) + ".");
  }
  std::vector<std::string> problems;
  const tokenizers::JsonNode root(tree, problems);
  if (!root.is_object() || !root.at("model").is_object()) {
    throw DataError(path_ + ": expected the JSON of a tokenizer, an object with a model. Save it with the package's " +
                    "Tokenizer.save, or with save_pretrained of a fast tokenizer.");
  }
  Parts& parts = *parts_;
  parts.normalizer = tokenizers::make_normalizer(root.at("normalizer"));
  parts.pre_tokenizer = tokenizers::make_pre_tokenizer(root.at("pre_tokenizer"));
  parts.model = tokenizers::make_token_model(root.at("model"));
  parts.post_processor = tokenizers::make_post_processor(root.at("post_processor"));
  parts.decoder = tokenizers::make_decoder(root.at("decoder"));
  parts.truncation = tokenizers::read_truncation(root.at("truncation"));
  parts.padding = tokenizers::read_padding(root.at("padding"));
  if (parts.model != nullptr) {
    tokenizers::Budget budget = tokenizers::Budget::of_file(json.size());
    parts.added = tokenizers::AddedTokens(root.at("added_tokens"), *parts.model, parts.normalizer.get(), budget);
  }
  if (problems.empty()) return;
  std::string text = path_ + ": the tokenizer cannot be used:";
  for (const std::string& problem : problems) text += "\n  " + problem;
  throw DataError(text);
}

int64_t HuggingFaceTokenizer::vocab_size() const {
  int64_t size = parts_->model->vocabulary().ids();
  for (const tokenizers::AddedToken& token : parts_->added.all()) size = std::max(size, int64_t{token.id} + 1);
  return size;
}

// The text between added tokens that are matched before normalization.
void HuggingFaceTokenizer::append_tokens(tokenizers::NormalText text, std::vector<int32_t>& ids,
                                         tokenizers::Budget& budget) const {
  budget.spend(text.text.size());
  if (parts_->normalizer != nullptr) parts_->normalizer->normalize(text, budget);
  const auto found = parts_->added.find(text.text, true, budget);
  if (found.size() == 1 && found[0].id == tokenizers::kNoToken) return append_words(std::move(text), ids, budget);
  for (const auto& part : found) {
    if (part.id != tokenizers::kNoToken) {
      ids.push_back(part.id);
    } else {
      append_words({text.text.substr(part.begin, part.end - part.begin), std::max(text.first, part.begin) - part.begin},
                   ids, budget);
    }
  }
}

void HuggingFaceTokenizer::append_words(tokenizers::NormalText text, std::vector<int32_t>& ids,
                                        tokenizers::Budget& budget) const {
  const size_t size = text.text.size();
  tokenizers::Words words{std::move(text.text), {{0, size, std::min(text.first, size)}}, budget};
  if (parts_->pre_tokenizer != nullptr) parts_->pre_tokenizer->cut(words);
  budget.keep_bytes(words.text.size());
  BorrowedCache cache(parts_->caches);
  std::string written;
  for (const tokenizers::Word& word : words.list) {
    const std::string_view view = words.view(word);
    budget.spend(view.size());
    budget.check_tokens(ids.size());
    if (view.empty() || cache->find(view, ids)) continue;
    const size_t first = ids.size();
    if (words.are_bytes) {
      written.clear();
      tokenizers::append_byte_characters(written, view);
      parts_->model->encode(written, ids, budget);
    } else {
      parts_->model->encode(view, ids, budget);
    }
    cache->keep(view, std::span(ids).subspan(first));
  }
  budget.check_tokens(ids.size());
}

std::vector<int32_t> HuggingFaceTokenizer::encode(std::string_view text) const {
  tokenizers::Budget budget = tokenizers::Budget::of_text(text.size());
  return encode_within(text, budget);
}

std::vector<int32_t> HuggingFaceTokenizer::encode_within(std::string_view text, tokenizers::Budget& budget) const {
  std::vector<int32_t> ids;
  const std::string valid = tokenizers::valid_utf8(text);
  for (const auto& part : parts_->added.find(valid, false, budget)) {
    if (part.id != tokenizers::kNoToken) {
      ids.push_back(part.id);
    } else {
      append_tokens({valid.substr(part.begin, part.end - part.begin),
                     part.begin == 0 ? tokenizers::size_of_character(valid[0]) : 0},
                    ids, budget);
    }
  }
  return ids;
}

Encoding HuggingFaceTokenizer::encode_texts(std::string_view first, const std::string_view* second,
                                            bool add_special_tokens) const {
  const size_t bytes = first.size() + (second == nullptr ? 0 : second->size());
  tokenizers::Budget budget = tokenizers::Budget::of_text(bytes);
  std::vector<Encoding> encodings = {tokenizers::make_encoding(encode_within(first, budget), 0)};
  if (second != nullptr) encodings.push_back(tokenizers::make_encoding(encode_within(*second, budget), 1));
  const auto* const processor = parts_->post_processor.get();
  if (parts_->truncation) {
    const int64_t added = add_special_tokens && processor != nullptr ? processor->added(second != nullptr) : 0;
    parts_->truncation->apply(encodings[0], second == nullptr ? nullptr : &encodings[1], added);
  }
  if (processor != nullptr) processor->process(encodings, add_special_tokens, budget);
  std::vector<Encoding> one(1);
  for (const Encoding& part : encodings) tokenizers::append(one[0], part);
  if (parts_->padding) parts_->padding->apply(one, budget);
  return std::move(one[0]);
}

Encoding HuggingFaceTokenizer::encode(std::string_view text, bool add_special_tokens) const {
  return encode_texts(text, nullptr, add_special_tokens);
}

Encoding HuggingFaceTokenizer::encode_pair(std::string_view first, std::string_view second,
                                           bool add_special_tokens) const {
  return encode_texts(first, &second, add_special_tokens);
}

std::vector<Encoding> HuggingFaceTokenizer::encode_batch(std::span<const std::string> texts,
                                                         bool add_special_tokens) const {
  std::vector<Encoding> encodings;
  size_t bytes = 0;
  for (const std::string& text : texts) {
    encodings.push_back(encode(text, add_special_tokens));
    bytes += text.size();
  }
  if (parts_->padding) parts_->padding->apply(encodings, tokenizers::Budget::of_text(bytes, texts.size()));
  return encodings;
}

std::vector<int32_t> HuggingFaceTokenizer::encode_to(std::string_view text, int64_t max_length) const {
  const auto* const processor = parts_->post_processor.get();
  tokenizers::Budget budget = tokenizers::Budget::of_text(text.size());
  std::vector<Encoding> encodings = {tokenizers::make_encoding(encode_within(text, budget), 0)};
  tokenizers::Truncation truncation = parts_->truncation.value_or(tokenizers::Truncation());
  truncation.max_length = max_length;
  truncation.from_left = parts_->cuts_left.value_or(truncation.from_left);
  truncation.strategy = tokenizers::Truncation::Strategy::longest_first;
  truncation.apply(encodings[0], nullptr, processor == nullptr ? 0 : processor->added(false));
  if (processor != nullptr) processor->process(encodings, true, budget);
  std::vector<int32_t> ids;
  for (const Encoding& part : encodings) ids.insert(ids.end(), part.ids.begin(), part.ids.end());
  return ids;
}

std::string HuggingFaceTokenizer::decode(std::span<const int64_t> tokens) const {
  return decode(tokens, true);
}

std::string HuggingFaceTokenizer::decode(std::span<const int64_t> tokens, bool skip_special_tokens) const {
  tokenizers::Budget budget = tokenizers::Budget::of_tokens(tokens.size());
  std::vector<std::string> texts;
  size_t bytes = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    auto token = id_to_token(tokens[i]);
    if (!token) {
      throw DataError(path_ + ": token " + std::to_string(i) + ": expected an id of the " +
                      std::to_string(vocab_size()) + " tokens, saw " + std::to_string(tokens[i]) + ".");
    }
    if (skip_special_tokens && parts_->added.is_special(*token)) continue;
    budget.check_bytes(bytes += token->size());
    texts.push_back(std::move(*token));
  }
  if (parts_->decoder != nullptr) {
    parts_->decoder->decode(texts, budget);
  } else {
    for (size_t i = 1; i < texts.size(); ++i) texts[i].insert(0, " ");
  }
  std::string text;
  for (const std::string& one : texts) text += one;
  return text;
}

std::optional<int32_t> HuggingFaceTokenizer::token_to_id(const std::string& token) const {
  int32_t id = parts_->added.id_of(token);
  if (id == tokenizers::kNoToken) id = parts_->model->vocabulary().id_of(token);
  return id == tokenizers::kNoToken ? std::nullopt : std::optional(id);
}

std::optional<std::string> HuggingFaceTokenizer::id_to_token(int64_t id) const {
  if (const auto* const token = parts_->added.token_of(id)) return token->text;
  const std::string* const token = parts_->model->vocabulary().token_of(id);
  return token == nullptr ? std::nullopt : std::optional(*token);
}

std::optional<int32_t> HuggingFaceTokenizer::pad_id() const {
  const auto named = named_id("pad_token");
  return named || !parts_->padding ? named : std::optional(parts_->padding->id);
}

std::optional<int32_t> HuggingFaceTokenizer::named_id(const std::string& name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? std::nullopt : token_to_id(found->second);
}

// "pad_token": "[PAD]" or {"content": "[PAD]", …}.
void HuggingFaceTokenizer::read_names(const std::string& folder) {
  for (const char* const file : {"special_tokens_map.json", "tokenizer_config.json"}) {
    const std::string path = (std::filesystem::path(folder) / file).string();
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) continue;
    const auto tree = parse_json(read_json_file(path));
    if (!tree.is_object()) throw DataError(path + ": expected a JSON object of special tokens by their names.");
    for (const auto& [name, value] : tree.items()) {
      if (name == "truncation_side" && value.is_string()) {
        const auto side = value.get<std::string>();
        if (side != "left" && side != "right") {
          throw DataError(path + ": truncation_side: expected left or right, saw " + cut_text(side) + ".");
        }
        parts_->cuts_left = side == "left";
      }
      if (!name.ends_with("_token")) continue;
      const auto& content = value.is_object() && value.contains("content") ? value["content"] : value;
      if (content.is_string()) names_[name] = content.get<std::string>();
    }
  }
}

bool detail::names_huggingface_tokenizer(const std::string& name) {
  std::error_code ignored;
  return name.ends_with(".json") || std::filesystem::exists(std::filesystem::path(name) / "tokenizer.json", ignored);
}

}  // namespace levin
