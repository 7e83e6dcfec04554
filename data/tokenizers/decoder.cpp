#include "levin/data/tokenizers/decoder.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "levin/data/tokenizers/byte_characters.h"
#include "levin/data/tokenizers/pattern.h"
#include "levin/data/tokenizers/pre_tokenizer.h"
#include "levin/data/tokenizers/unicode.h"

namespace levin::tokenizers {

namespace {

constexpr int kMaxDecoderDepth = 16;

using Tokens = std::vector<std::string>;

size_t bytes_in(const Tokens& tokens) {
  size_t bytes = 0;
  for (const std::string& token : tokens) bytes += token.size();
  return bytes;
}

class FunctionDecoder final : public Decoder {
 public:
  using Function = std::function<void(Tokens&, Budget&)>;
  explicit FunctionDecoder(Function function) : function_(std::move(function)) {}
  void decode(Tokens& tokens, Budget& budget) const override {
    function_(tokens, budget);
    const size_t bytes = bytes_in(tokens);
    budget.check_bytes(bytes);
    budget.spend(bytes + tokens.size());
  }

 private:
  Function function_;
};

void replace_all(std::string& text, std::string_view what, std::string_view with) {
  if (what.empty()) return;
  std::string result;
  size_t begin = 0;
  for (size_t at = find_literal(text, what, 0); at != std::string::npos; at = find_literal(text, what, begin)) {
    result.append(text, begin, at - begin).append(with);
    begin = at + what.size();
  }
  text = result.append(text, begin);
}

std::string joined(const Tokens& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

void decode_bytes(Tokens& tokens, Budget&) {
  std::string bytes;
  for (const std::string& token : tokens) bytes += bytes_of_characters(token).value_or(token);
  tokens = {valid_utf8(bytes)};
}

// The byte of a token "<0x0A>"; -1: it is not one.
int byte_of_token(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int byte = 0;
  for (const char c : {token[3], token[4]}) {
    const int digit = c >= '0' && c <= '9'                     ? c - '0'
                      : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                               : -1;
    if (digit < 0) return -1;
    byte = byte * 16 + digit;
  }
  return byte;
}

// Adjacent bytes become text if they are UTF-8, else one U+FFFD per byte.
void decode_byte_tokens(Tokens& tokens, Budget&) {
  Tokens result;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    if (valid_utf8(bytes) == bytes) {
      result.push_back(bytes);
    } else {
      result.insert(result.end(), bytes.size(), "\ufffd");
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    const int byte = byte_of_token(token);
    if (byte >= 0) {
      bytes.push_back(static_cast<char>(byte));
      continue;
    }
    flush();
    result.push_back(std::move(token));
  }
  flush();
  tokens = std::move(result);
}

// Removes the spaces from English text that BERT's tokenizer puts around punctuation.
void clean_up(std::string& text) {
  constexpr std::pair<const char*, const char*> kChanges[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [what, with] : kChanges) replace_all(text, what, with);
}

std::unique_ptr<const Decoder> word_piece_decoder(const JsonNode& node) {
  return std::make_unique<FunctionDecoder>(
      [prefix = node.text("prefix", "##"), cleans = node.flag("cleanup", true)](Tokens& tokens, Budget&) {
        for (size_t i = 0; i < tokens.size(); ++i) {
          if (i > 0 && tokens[i].starts_with(prefix)) {
            tokens[i].erase(0, prefix.size());
          } else if (i > 0) {
            tokens[i].insert(0, " ");
          }
          if (cleans) clean_up(tokens[i]);
        }
      });
}

std::unique_ptr<const Decoder> metaspace_decoder(const JsonNode& node) {
  const MetaspaceOptions options = read_metaspace(node);
  std::string space;
  append(space, options.replacement);
  const bool drops_first = options.prepend != MetaspaceOptions::Prepend::never;
  return std::make_unique<FunctionDecoder>([space, drops_first](Tokens& tokens, Budget&) {
    for (size_t i = 0; i < tokens.size(); ++i) replace_all(tokens[i], space, i == 0 && drops_first ? "" : " ");
  });
}

std::unique_ptr<const Decoder> suffix_decoder(const JsonNode& node) {
  return std::make_unique<FunctionDecoder>([suffix = node.text("suffix", "</w>")](Tokens& tokens, Budget&) {
    for (size_t i = 0; i < tokens.size(); ++i) replace_all(tokens[i], suffix, i + 1 == tokens.size() ? "" : " ");
  });
}

// Up to `start` of a character from the begin of each token, and up to `stop` from its end.
std::unique_ptr<const Decoder> strip_decoder(const JsonNode& node) {
  std::string content;
  append(content, node.character("content"));
  const int64_t start = node.count("start", 1 << 24), stop = node.count("stop", 1 << 24);
  return std::make_unique<FunctionDecoder>([=](Tokens& tokens, Budget&) {
    for (std::string& token : tokens) {
      std::string_view rest = token;
      for (int64_t i = 0; i < start && rest.starts_with(content); ++i) rest.remove_prefix(content.size());
      for (int64_t i = 0; i < stop && rest.ends_with(content); ++i) rest.remove_suffix(content.size());
      token = std::string(rest);
    }
  });
}

// Of speech recognition: what is repeated counts once, and a token separates what is really there twice.
std::unique_ptr<const Decoder> ctc_decoder(const JsonNode& node) {
  return std::make_unique<FunctionDecoder>([pad = node.text("pad_token", "<pad>"),
                                            delimiter = node.text("word_delimiter_token", "|"),
                                            cleans = node.flag("cleanup", true)](Tokens& tokens, Budget&) {
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    for (std::string& token : tokens) {
      replace_all(token, pad, "");
      if (!cleans) continue;
      clean_up(token);
      replace_all(token, delimiter, " ");
    }
    std::erase(tokens, "");
  });
}

std::unique_ptr<const Decoder> decoder_sequence(const JsonNode& node, int depth) {
  auto decoders = std::make_shared<std::vector<std::unique_ptr<const Decoder>>>();
  for (const JsonNode& one : node.at("decoders").elements()) {
    if (auto made = make_decoder(one, depth + 1)) decoders->push_back(std::move(made));
  }
  return std::make_unique<FunctionDecoder>([decoders](Tokens& tokens, Budget& budget) {
    for (const auto& one : *decoders) one->decode(tokens, budget);
  });
}

std::unique_ptr<const Decoder> replace_decoder(const JsonNode& node) {
  return std::make_unique<FunctionDecoder>(
      [pattern = make_pattern(node.at("pattern")), content = node.text("content")](Tokens& tokens, Budget& budget) {
        size_t bytes = 0, none = 0;
        for (std::string& token : tokens) {
          token = pattern.replaced(token, content, budget, none);
          budget.check_bytes(bytes += token.size());
        }
      });
}

}  // namespace

std::unique_ptr<const Decoder> make_decoder(const JsonNode& node, int depth) {
  if (node.is_null()) return nullptr;
  const std::string type = node.text("type");
  if (type == "ByteLevel") return std::make_unique<FunctionDecoder>(decode_bytes);
  if (type == "ByteFallback") return std::make_unique<FunctionDecoder>(decode_byte_tokens);
  if (type == "Fuse")
    return std::make_unique<FunctionDecoder>([](Tokens& tokens, Budget&) { tokens = {joined(tokens)}; });
  if (type == "WordPiece") return word_piece_decoder(node);
  if (type == "Metaspace") return metaspace_decoder(node);
  if (type == "BPEDecoder") return suffix_decoder(node);
  if (type == "Strip") return strip_decoder(node);
  if (type == "Replace") return replace_decoder(node);
  if (type == "CTC") return ctc_decoder(node);
  if (type == "Sequence" && depth < kMaxDecoderDepth) return decoder_sequence(node, depth);
  if (!type.empty()) node.at("type").refuse("the decoder " + type + " is not supported.");
  return nullptr;
}

}  // namespace levin::tokenizers
