#include "levin/strategies/launch/init_method.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <optional>

#include "levin/core/options/error.h"
#include "levin/strategies/launch/cluster_environment.h"

namespace levin {

namespace {

constexpr const char* kUse = "Write --init-method tcp://HOST:PORT --rank R --world-size N, with R from 0 to N - 1.";

struct StartOptions {
  std::map<std::string, std::string> values = {};  // by name: "init-method"
  std::vector<std::string> others = {};
};

// The option's name with dashes, if it is one of the three.
std::string name_of(const std::string& argument) {
  if (!argument.starts_with("--")) return "";
  std::string name =
      argument.substr(2, argument.find('=') == std::string::npos ? std::string::npos : argument.find('=') - 2);
  std::replace(name.begin(), name.end(), '_', '-');
  return name == "init-method" || name == "rank" || name == "world-size" ? name : "";
}

StartOptions read(const std::vector<std::string>& arguments) {
  StartOptions options;
  for (size_t k = 0; k < arguments.size(); ++k) {
    const std::string name = name_of(arguments[k]);
    if (name.empty()) {
      options.others.push_back(arguments[k]);
      continue;
    }
    const size_t equals = arguments[k].find('=');
    if (equals == std::string::npos && k + 1 == arguments.size()) {
      throw ConfigError("--" + name + ": no value follows. " + kUse);
    }
    const std::string value = equals == std::string::npos ? arguments[++k] : arguments[k].substr(equals + 1);
    const auto [place, is_new] = options.values.emplace(name, value);
    if (!is_new && place->second != value) {
      throw ConfigError("--" + name + ": specified twice, as " + cut_text(place->second) + " and as " +
                        cut_text(value) + ". Keep one of them.");
    }
  }
  return options;
}

int64_t number(const std::string& name, const std::string& text, int64_t low, int64_t high) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= low && value <= high) return value;
  throw ConfigError("--" + name + ": \"" + cut_text(text) + "\" is not a number from " + std::to_string(low) + " to " +
                    std::to_string(high) + ". " + kUse);
}

// "tcp://10.0.0.1:23456", "tcp://[fe80::1]:23456".
void read_url(const std::string& url, World& world) {
  const std::string scheme = "tcp://";
  const size_t colon = url.rfind(':');
  if (!url.starts_with(scheme) || colon == std::string::npos || colon <= scheme.size()) {
    throw ConfigError("--init-method: \"" + cut_text(url) + "\" is not an address that ranks can connect to. " + kUse);
  }
  std::string host = url.substr(scheme.size(), colon - scheme.size());
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  world.master_address = host;
  world.master_port = number("init-method", url.substr(colon + 1), 1, 65535);
}

std::string text_of(const World& world) {
  return rank_text(world) + " at " + world.master_address + ":" + std::to_string(world.master_port);
}

bool same_place(const World& a, const World& b) {
  return a.rank == b.rank && a.size == b.size && a.master_address == b.master_address && a.master_port == b.master_port;
}

void set_variables(const World& world, const std::string& source) {
  ::setenv("RANK", std::to_string(world.rank).c_str(), 1);
  ::setenv("WORLD_SIZE", std::to_string(world.size).c_str(), 1);
  ::setenv("MASTER_ADDR", world.master_address.c_str(), 1);
  ::setenv("MASTER_PORT", std::to_string(world.master_port).c_str(), 1);
  ::setenv(kInitMethodVariable, source.c_str(), 1);
}

}  // namespace

std::vector<std::string> take_init_method(const std::vector<std::string>& arguments) {
  const StartOptions options = read(arguments);
  if (options.values.empty()) return options.others;
  for (const char* name : {"init-method", "rank", "world-size"}) {
    if (!options.values.contains(name)) {
      throw ConfigError(std::string("--") + name + ": missing, but needed with --" + options.values.begin()->first +
                        ". " + kUse);
    }
  }
  World world;
  read_url(options.values.at("init-method"), world);
  world.size = number("world-size", options.values.at("world-size"), 1, 1 << 20);
  world.rank = number("rank", options.values.at("rank"), 0, world.size - 1);
  const std::optional<World> found = find_world(process_variables());
  if (found && !same_place(*found, world)) {
    throw ConfigError("--init-method: the arguments make this process " + text_of(world) + ", but " + found->source +
                      " has made it " + text_of(*found) + ". Start it in one of the two ways.");
  }
  if (!found) set_variables(world, "--init-method");
  return options.others;
}

}  // namespace levin
