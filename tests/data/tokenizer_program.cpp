// tokenizer_program TEXTS.json TOKENIZER.json…: prints a line for each tokenizer, a JSON array with what it makes of
// each text; tokenizer_peers.py compares it with Hugging Face's package.
// tokenizer_program --time TOKENIZER.json TEXT.txt: MB/s of encoding its lines one by one, and at once.
#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "levin/core/files/files.h"
#include "levin/data/text/huggingface_tokenizer.h"

namespace tokenizer_program {
namespace {

using levin::HuggingFaceTokenizer;

nlohmann::json row_of(const HuggingFaceTokenizer& tokenizer, const std::string& text) {
  const levin::Encoding one = tokenizer.encode(text, true), pair = tokenizer.encode_pair(text, "and a second one");
  const std::vector<int32_t> alone = tokenizer.encode(text);
  const std::vector<int64_t> ids(alone.begin(), alone.end());
  return {one.ids,      one.type_ids,          one.attention_mask,           one.special_tokens_mask,
          alone,        tokenizer.decode(ids), tokenizer.decode(ids, false), pair.ids,
          pair.type_ids};
}

template <class Work>
void time_work(const char* name, size_t bytes, Work work) {
  for (int i = 0; i < 3; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const size_t tokens = work();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::printf("%s: %.1f MB/s, %zu tokens\n", name, static_cast<double>(bytes) / seconds.count() / 1e6, tokens);
  }
}

void time_tokenizer(const std::string& tokenizer_path, const std::string& text_path) {
  const HuggingFaceTokenizer tokenizer(tokenizer_path);
  const std::string text = levin::read_file(text_path);
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  time_work("lines", text.size(), [&] {
    size_t tokens = 0;
    for (const std::string& line : lines) tokens += tokenizer.encode(line).size();
    return tokens;
  });
  time_work("at once", text.size(), [&] { return tokenizer.encode(text).size(); });
}

}  // namespace

int run_program(int argc, char** argv) {
  try {
    if (argc == 4 && std::string(argv[1]) == "--time") {
      time_tokenizer(argv[2], argv[3]);
      return 0;
    }
    const auto texts = nlohmann::json::parse(levin::read_file(argv[1]));
    for (int i = 2; i < argc; ++i) {
      const HuggingFaceTokenizer tokenizer{std::string(argv[i])};
      nlohmann::json rows = nlohmann::json::array();
      for (const auto& text : texts) rows.push_back(row_of(tokenizer, text.get<std::string>()));
      std::cout << rows.dump() << "\n";
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}

}  // namespace tokenizer_program
