// An input is a run file of LightningCLI. For any text, it is translated to a tree that can be printed and read, or
// problems say what is wrong. It has no libFuzzer target, because the options of all classes need the whole library;
// `./dev check --preset asan` runs it with sanitizers.
#include "fuzz_support.h"
#include "levin/cli/config/commented_yaml.h"
#include "levin/cli/config/lightning_file.h"
#include "levin/yaml/yaml_file.h"

namespace levin::fuzz {
namespace {

void check_problems(const Problems& problems) {
  for (const auto& line : problems.lines()) {
    expect_good_message(line, 10'000);
  }
}

}  // namespace

void run_one(std::string_view input) {
  ++Counts::instance().inputs;
  Problems problems;
  const ConfigNode config = read_yaml_text(std::string(input), "lightning.yaml", problems);
  if (!problems.empty()) return;
  for (const char* model : {"", "Net"}) {
    const TranslatedFile file =
        translate_lightning_file(config, {.model = model, .data = "", .optimizer = "", .lr_scheduler = ""}, problems);
    check_problems(problems);
    check_problems(file.left_out);
    if (!problems.empty()) return;
    const std::string text = to_commented_yaml(file.config);
    if (text.size() > kMaxYamlFileBytes) return;
    (void)read_yaml_text(text, "translated.yaml", problems);
    expect(problems.empty(), "what is translated can be read",
           problems.empty() ? "" : problems.lines()[0] + "\n" + text);
  }
  ++Counts::instance().whole;
}

void begin() {
  Counts::print_at_exit();
}

}  // namespace levin::fuzz
