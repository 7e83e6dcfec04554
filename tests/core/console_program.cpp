// Run by console_test.cpp under its own terminal: prints on the Console what its arguments ask for.
//   console_program live 'epoch 1' print hello finish
#include <span>
#include <string>

#include "levin/core/process/console.h"

int main(int argc, char** argv) {
  levin::Console& console = levin::Console::instance();
  const std::span<char*> words(argv + 1, static_cast<size_t>(argc - 1));
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string word = words[i];
    if (word == "finish") {
      console.finish_live();
      continue;
    }
    const std::string text = words[++i];
    if (word == "print") console.print(text);
    if (word == "live") console.live(text);
    if (word == "warn") console.warn(text);
    if (word == "error") console.error(text);
    if (word == "rank") console.set_rank(std::stoi(text));
  }
  return 0;
}
