// An ObjectStore that a test drives from outside, between servers that the test starts, disturbs and kills.
//
//   storage_program URL [LIMITS]      LIMITS: a JSON object: attempts, first_pause, stall_timeout (seconds), min_speed
//
// Each line of standard input is a JSON list, a call; each call is answered by a line on standard output: its result,
// or {"error": …}. Bytes are in base 16.
#include <chrono>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "levin/core/files/checksum.h"
#include "levin/core/process/main_guard.h"
#include "levin/core/storage/open_store.h"

namespace storage_program {
namespace {

using Json = nlohmann::json;
using levin::ObjectStore;

Json json_of(const levin::StoredObject& object) {
  return {{"key", object.key}, {"size", object.size}, {"etag", object.etag}};
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

Json answer_or_error(const std::function<Json()>& action) {
  try {
    return action();
  } catch (const levin::StorageError& error) {
    return {{"error", error.what()}};
  } catch (const std::exception& error) {
    return {{"error", error.what()}, {"other", true}};
  }
}

// Fetches on a thread, until a line comes.
Json fetch_until_line(ObjectStore& store, const Json& call) {
  std::atomic<bool> abandoned = false;
  Json result;
  std::thread thread([&] {
    result = answer_or_error([&] {
      store.fetch(call.at(1), call.at(2), &abandoned);
      return Json(true);
    });
  });
  std::string line;
  std::getline(std::cin, line);
  abandoned = true;
  thread.join();
  return result;
}

// Reads keys on several threads at once; the result is the time in seconds, and the errors.
Json read_all(ObjectStore& store, const std::vector<std::string>& keys, size_t threads) {
  const auto start = std::chrono::steady_clock::now();
  std::atomic<size_t> next = 0;
  std::vector<Json> results(keys.size());
  std::vector<std::thread> workers;
  for (size_t k = 0; k < threads; ++k) {
    workers.emplace_back([&] {
      for (size_t i = next++; i < keys.size(); i = next++) {
        results[i] = answer_or_error([&] { return Json(store.read(keys[i]).size()); });
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return {{"seconds", took.count()}, {"results", results}};
}

Json run_call(ObjectStore& store, const Json& call) {
  const std::string what = call.at(0);
  if (what == "url") return store.url(call.at(1));
  if (what == "find") {
    const auto found = store.find(call.at(1));
    return found ? json_of(*found) : Json();
  }
  if (what == "list") {
    Json all = Json::array();
    for (const auto& object : store.list(call.at(1))) all.push_back(json_of(object));
    return all;
  }
  if (what == "read") {
    const auto length = call.size() > 3 ? std::optional<uint64_t>(call.at(3)) : std::nullopt;
    return levin::hex_text(store.read(call.at(1), call.size() > 2 ? call.at(2).get<uint64_t>() : 0, length));
  }
  if (what == "read_all") return read_all(store, call.at(1), call.at(2));
  if (what == "fetch_until_line") return fetch_until_line(store, call);
  if (what == "put_if_absent") return store.put_if_absent(call.at(1), from_hex(call.at(2)));
  if (what == "fetch") {
    store.fetch(call.at(1), call.at(2));
  } else if (what == "put") {
    store.put(call.at(1), from_hex(call.at(2)));
  } else if (what == "put_file") {
    store.put_file(call.at(1), call.at(2));
  } else if (what == "remove") {
    store.remove(call.at(1));
  } else {
    throw levin::Error("unknown call: " + what);
  }
  return true;
}

int run(int argc, char** argv) {
  if (argc < 2) throw levin::Error("usage: storage_program URL [LIMITS]");
  levin::FetchLimits limits;
  if (argc > 2) {
    const Json json = Json::parse(argv[2]);
    limits.attempts = json.value("attempts", limits.attempts);
    limits.first_pause = levin::Seconds(json.value("first_pause", limits.first_pause.count()));
    limits.stall_timeout = levin::Seconds(json.value("stall_timeout", limits.stall_timeout.count()));
    limits.min_speed = json.value("min_speed", limits.min_speed);
  }
  std::shared_ptr<ObjectStore> store;
  const Json opened = answer_or_error([&] {
    store = levin::open_store(argv[1], limits);
    return Json("open");
  });
  std::cout << opened.dump() << std::endl;
  for (std::string line; store != nullptr && std::getline(std::cin, line);) {
    std::cout << answer_or_error([&] { return run_call(*store, Json::parse(line)); }).dump() << std::endl;
  }
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  return levin::main_guard([&] { return run(argc, argv); });
}

}  // namespace storage_program
