// libFuzzer target: an input is what `levin fit --config A --config B --PATH=VALUE` is given, in sections separated by
// a line "%%%%". For any text, the reader returns a tree or problems that can be shown; a tree without problems can
// be printed and read back.
#include <cstdint>
#include <vector>

#include "fuzz_support.h"
#include "levin/cli/config/merge.h"
#include "levin/cli/config/run_config.h"
#include "levin/yaml/yaml_file.h"

namespace levin::fuzz {
namespace {

// "trainer.max_epochs=3", or with "+=".
void override_with(ConfigNode& config, const std::string& text, Problems& problems) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) return;
  const bool append = equals > 0 && text[equals - 1] == '+';
  apply_override(config, {text.substr(0, equals - (append ? 1 : 0)), text.substr(equals + 1), append}, problems);
}

void check_round_trip(const ConfigNode& config) {
  const std::string text = to_yaml(config);
  if (text.size() > kMaxYamlFileBytes) return;
  Problems problems;
  const ConfigNode again = read_yaml_text(text, "printed.yaml", problems);
  expect(problems.empty(), "what is printed can be read", problems.empty() ? "" : problems.lines()[0] + "\n" + text);
  expect(again.same_as(config), "what is printed reads back to the same", text);
}

}  // namespace

void run_one(std::string_view input) {
  const std::vector<std::string> sections = sections_of(input, 8);
  Problems problems;
  ConfigNode config = read_yaml_text(sections[0], "run.yaml", problems);
  if (sections.size() > 1) merge_config(config, read_yaml_text(sections[1], "more.yaml", problems));
  for (size_t i = 2; i < sections.size(); ++i) override_with(config, sections[i], problems);
  if (problems.empty()) check_round_trip(config);
  (void)read_run_config(config, problems);
  expect(problems.size() <= 200, "problems are not endless");
  for (const auto& line : problems.lines()) {
    expect_good_message(line, 10'000);
    check_planted(line, "first at more.yaml:");
  }
}

void begin() {}

}  // namespace levin::fuzz
