#include "levin/cli/commands/submit_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <regex>

#include "levin/cli/commands/submit_script.h"
#include "levin/core/error.h"

namespace levin {

namespace {

constexpr int64_t kMostTasks = 1000;  // Slurm's default limit of an array (MaxArraySize=1001)

struct Known {
  const char* name;
  bool has_value;
};

constexpr std::array kKnown{
    Known{"nodes", true},       Known{"ntasks-per-node", true}, Known{"time", true},  Known{"job-name", true},
    Known{"output", true},      Known{"signal-before", true},   Known{"slurm", true}, Known{"grid", true},
    Known{"no-requeue", false}, Known{"dry-run", false},        Known{"help", false}};

// Options of sbatch that submit writes itself.
constexpr std::array kOwn{"nodes",   "ntasks-per-node", "time",   "job-name", "output", "array",    "signal",
                          "requeue", "no-requeue",      "ntasks", "chdir",    "wrap",   "open-mode"};

// "4", "1:30" or "04:00:00" (minutes; minutes and seconds; hours), "1-12", "1-12:30:00" (days), "UNLIMITED".
bool is_slurm_time(const std::string& text) {
  static const std::regex form(R"((\d+(:\d{1,2}(:\d{1,2})?)?)|(\d+-\d{1,2}(:\d{1,2}(:\d{1,2})?)?)|UNLIMITED|INFINITE)");
  const bool is_zero = text.find_first_not_of("0:-") == std::string::npos;
  return std::regex_match(text, form) && !is_zero;
}

// Splits the values of a grid at commas outside of brackets and quotes.
std::vector<std::string> parted(const std::string& text) {
  std::vector<std::string> values(1);
  int depth = 0;
  char quote = '\0';
  for (const char letter : text) {
    if (quote != '\0') {
      if (letter == quote) quote = '\0';
    } else if (letter == '\'' || letter == '"') {
      quote = letter;
    } else if (letter == '[' || letter == '{') {
      ++depth;
    } else if (letter == ']' || letter == '}') {
      --depth;
    }
    if (letter == ',' && depth == 0 && quote == '\0') {
      values.emplace_back();
    } else {
      values.back() += letter;
    }
  }
  return values;
}

class Reader {
 public:
  Reader(const std::vector<std::string>& words, Problems& problems) : words_(words), problems_(problems) {}

  SubmitOptions read() {
    for (; at_ < words_.size(); ++at_) {
      const std::string& word = words_[at_];
      const size_t equals = word.find('=');
      std::string name =
          word.starts_with("--") ? word.substr(2, equals == std::string::npos ? equals : equals - 2) : "";
      std::replace(name.begin(), name.end(), '_', '-');
      if (word == "-h") name = "help";
      const auto* known =
          std::find_if(kKnown.begin(), kKnown.end(), [&](const Known& one) { return one.name == name; });
      if (known == kKnown.end()) {
        options_.run.push_back(word);
      } else if (!known->has_value) {
        flag(name, word);
      } else if (equals != std::string::npos) {
        set(name, word.substr(equals + 1));
      } else if (at_ + 1 < words_.size() && !words_[at_ + 1].starts_with("--")) {
        set(name, words_[++at_]);
      } else {
        problems_.add({}, "--" + name, "no value follows. Write --" + name + "=VALUE.");
      }
    }
    check_size();
    return std::move(options_);
  }

 private:
  void flag(const std::string& name, const std::string& word) {
    if (word.find('=') != std::string::npos)
      problems_.add({}, "--" + name, "takes no value, got " + cut_text(word) + ".");
    options_.help = options_.help || name == "help";
    options_.dry_run = options_.dry_run || name == "dry-run";
    if (name == "no-requeue") options_.requeue = false;
  }

  void set(const std::string& name, const std::string& value) {
    if (!is_one_line(value)) {
      problems_.add({}, "--" + name, "\"" + cut_text(value) + "\" contains a newline or another control character.");
    } else if (name == "nodes") {
      options_.nodes = count(name, value);
    } else if (name == "ntasks-per-node") {
      options_.tasks_per_node = count(name, value);
    } else if (name == "signal-before") {
      options_.signal_seconds = count(name, value);
    } else if (name == "time") {
      set_time(value);
    } else if (name == "slurm") {
      add_slurm(value);
    } else if (name == "grid") {
      add_axis(value);
    } else {
      (name == "output" ? options_.output : options_.job_name) = value;
    }
  }

  int64_t count(const std::string& name, const std::string& text) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool good = error == std::errc() && end == text.data() + text.size() && value >= 1 && value <= 65535;
    if (!good) problems_.add({}, "--" + name, "expected a whole number from 1 to 65535, got " + cut_text(text) + ".");
    return good ? value : 1;
  }

  void set_time(const std::string& text) {
    options_.time = text;
    if (is_slurm_time(text)) return;
    problems_.add({}, "--time",
                  "\"" + cut_text(text) +
                      "\" is no time that Slurm knows. Write 04:00:00 (hours:minutes:seconds), 90 "
                      "(minutes) or 1-12 (days-hours).");
  }

  void add_slurm(const std::string& text) {
    const size_t equals = std::min(text.find('='), text.size());
    const std::string name = text.substr(0, equals);
    const bool is_name = !name.empty() &&
                         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string::npos &&
                         name[0] != '-';
    const bool is_own = std::any_of(kOwn.begin(), kOwn.end(), [&](const char* own) { return name == own; });
    if (!is_name) {
      problems_.add({}, "--slurm", "\"" + cut_text(text) + "\" is no option of sbatch. Write --slurm partition=NAME.");
    } else if (is_own) {
      problems_.add({}, "--slurm", name + " is written by levin submit itself; see levin submit --help.");
    } else {
      options_.slurm.emplace_back(name, equals < text.size() ? text.substr(equals + 1) : "");
    }
  }

  void add_axis(const std::string& text) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      problems_.add({}, "--grid",
                    "\"" + cut_text(text) + "\" has no option with values. Write --grid model.lr=0.1,0.01.");
      return;
    }
    GridAxis axis{text.substr(0, equals), parted(text.substr(equals + 1))};
    const auto same = [&](const GridAxis& other) { return other.path == axis.path; };
    if (std::any_of(options_.grid.begin(), options_.grid.end(), same)) {
      problems_.add({}, "--grid", axis.path + " is given twice. Write all its values in one.");
    }
    if (std::find(axis.values.begin(), axis.values.end(), "") != axis.values.end()) {
      problems_.add({}, "--grid", axis.path + " has an empty value in \"" + cut_text(text) + "\".");
    }
    options_.grid.push_back(std::move(axis));
  }

  void check_size() {
    int64_t points = 1;
    for (const auto& axis : options_.grid) {
      points = std::min<int64_t>(points * static_cast<int64_t>(axis.values.size()), kMostTasks + 1);
    }
    if (points > kMostTasks) {
      problems_.add({}, "--grid", "more than " + std::to_string(kMostTasks) + " combinations. Submit it in parts.");
    }
  }

  const std::vector<std::string>& words_;
  Problems& problems_;
  SubmitOptions options_;
  size_t at_ = 0;
};

}  // namespace

SubmitOptions read_submit_options(const std::vector<std::string>& words, Problems& problems) {
  return Reader(words, problems).read();
}

std::vector<std::vector<std::string>> grid_points(const std::vector<GridAxis>& grid) {
  std::vector<std::vector<std::string>> points;
  if (!grid.empty()) points.emplace_back();
  for (const auto& axis : grid) {
    std::vector<std::vector<std::string>> longer;
    for (const auto& point : points) {
      for (const auto& value : axis.values) {
        longer.push_back(point);
        longer.back().push_back("--" + axis.path + "=" + value);
      }
    }
    points = std::move(longer);
  }
  return points;
}

}  // namespace levin
