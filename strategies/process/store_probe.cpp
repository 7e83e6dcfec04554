#include "levin/strategies/process/store_probe.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStoreBackend.hpp>

#include "levin/core/console.h"
#include "levin/core/error.h"
#include "levin/strategies/launch/connection.h"

namespace levin {

namespace {

using ProbeClock = std::chrono::steady_clock;
using ProbeTime = std::chrono::milliseconds;

constexpr ProbeTime kSilence = std::chrono::seconds(30);  // possible for a store on a very busy machine
constexpr ProbeTime kBeforeWarning = std::chrono::seconds(30);
constexpr size_t kShownBytes = 60;

// A store returns the number of a ping. Line-based programs read this number as line ends, and respond.
constexpr std::string_view kPing = "\n\n\n\n";
// The first bytes that a gate sends; see shared_secret.cpp.
constexpr std::string_view kGate = "LEVIN ";

enum class Answerer { store, other, silent, closing, nobody };

struct Answer {
  Answerer who;
  std::string text = "";  // other: the bytes received; nobody: the reason
};

std::string question() {
  std::string text(1, static_cast<char>(c10d::detail::QueryType::VALIDATE));
  const uint32_t magic = c10d::detail::validationMagicNumber;
  text.append(reinterpret_cast<const char*>(&magic), sizeof magic);
  text += static_cast<char>(c10d::detail::QueryType::PING);
  return text.append(kPing);
}

// Reads for at most `patience`, up to a store's answer or the first byte that differs from it.
Answer listen_to(const Connection& connection, ProbeTime patience) {
  const auto deadline = ProbeClock::now() + patience;
  std::string said;
  while (said.size() < kPing.size() && kPing.starts_with(said)) {
    const auto left = std::chrono::ceil<ProbeTime>(deadline - ProbeClock::now()).count();
    pollfd waiting = {connection.descriptor(), POLLIN, 0};
    const int ready = left > 0 ? ::poll(&waiting, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return {Answerer::silent};
    std::array<char, kShownBytes> buffer;  // NOLINT: filled by recv
    const ssize_t got = ::recv(connection.descriptor(), buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return {said.empty() ? Answerer::closing : Answerer::other, said};
    said.append(buffer.data(), static_cast<size_t>(got));
  }
  return {said == kPing ? Answerer::store : Answerer::other, said};
}

Answer ask(const std::string& host, int64_t port, ProbeTime patience) {
  const Connection connection = connect_to(host, port);
  if (!connection) return {Answerer::nobody, std::strerror(errno)};
  const std::string text = question();
  (void)::send(connection.descriptor(), text.data(), text.size(), MSG_NOSIGNAL);  // after a failure, reading fails too
  return listen_to(connection, patience);
}

[[noreturn]] void report_other(const std::string& place, const std::string& said) {
  if (said.starts_with(kGate)) {
    throw Error("rank 0 listens at " + place +
                " and requires a shared secret, which is not set for this rank. Set LEVIN_SECRET, or "
                "LEVIN_SECRET_FILE, to the same secret on all nodes.");
  }
  throw Error("another program listens at " + place + ", where rank 0's store should be: its answer is \"" +
              cut_text(said.substr(0, said.find_first_of("\r\n")), kShownBytes) +
              "\". Set MASTER_PORT to choose another port.");
}

std::string seconds_text(ProbeTime time) {
  return std::to_string(time.count() / 1000) + " s";
}

}  // namespace

void await_store(const std::string& host, int64_t port, ProbeTime timeout) {
  const std::string place = host + ", port " + std::to_string(port);
  const ProbeTime patience = std::min(timeout, kSilence);
  const auto start = ProbeClock::now();
  for (;;) {
    const Answer answer = ask(host, port, patience);
    if (answer.who == Answerer::store) return;
    if (answer.who == Answerer::other) report_other(place, answer.text);
    if (answer.who == Answerer::silent) {
      throw Error("the program that listens at " + place + " has sent nothing for " + seconds_text(patience) +
                  ": it is another program, or rank 0 hangs. Set MASTER_PORT to choose another port.");
    }
    const bool closes = answer.who == Answerer::closing;
    const auto waited = ProbeClock::now() - start;
    const std::string closing = "the program that listens at " + place +
                                " closes every connection without an answer: it is another program, or a forwarded "
                                "port behind which rank 0 has not started";
    if (waited >= timeout) {
      throw Error(closes ? closing + ", for " + seconds_text(timeout) + "."
                         : "nothing has listened at " + place + " for " + seconds_text(timeout) + ": " + answer.text +
                               ". Are all ranks running, and does that port reach rank 0's machine?");
    }
    if (closes && waited >= kBeforeWarning) Console::instance().warn(closing + ".");
    std::this_thread::sleep_for(ProbeTime(200));
  }
}

}  // namespace levin
