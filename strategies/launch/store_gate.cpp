#include "levin/strategies/launch/store_gate.h"

#include <netdb.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/options/units.h"
#include "levin/core/process/console.h"
#include "levin/core/process/process_exit.h"
#include "levin/core/process/shared_library.h"
#include "levin/core/process/start_thread.h"
#include "levin/strategies/launch/launcher.h"
#include "levin/strategies/launch/launcher_signals.h"
#include "levin/strategies/launch/listening_socket.h"
#include "levin/strategies/launch/rank_process.h"

namespace levin {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kVisit(10);    // for the proof that a visitor has the secret
constexpr int kMaxUnprovedConnections = 512;  // without proof yet

// Forwards received bytes; returns false once the connection has ended.
bool pass_on(int from, int to) {
  std::array<char, 16384> buffer;  // NOLINT: filled by recv
  const ssize_t got = ::recv(from, buffer.data(), buffer.size(), 0);
  if (got < 0 && errno == EINTR) return true;
  if (got <= 0) return false;
  for (ssize_t sent = 0; sent < got;) {
    const ssize_t now = ::send(to, buffer.data() + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return false;
    sent += now;
  }
  return true;
}

// Forwards in both directions until one side closes. The store's protocol is request and response, so nothing is left
// to forward then.
void relay(const Connection& one, const Connection& other) {
  std::array<pollfd, 2> ends = {pollfd{one.descriptor(), POLLIN, 0}, pollfd{other.descriptor(), POLLIN, 0}};
  for (;;) {
    if (::poll(ends.data(), ends.size(), -1) < 0) {
      if (errno == EINTR) continue;  // nothing is known of the ends
      return;
    }
    for (size_t k = 0; k < ends.size(); ++k) {
      if (ends[k].revents != 0 && !pass_on(ends[k].fd, ends[1 - k].fd)) return;
    }
  }
}

// With signals blocked: the training thread handles them.
template <class Task>
void in_background(Task task) {
  const BlockedSignals blocked;
  start_thread("connects ranks", std::move(task)).detach();
}

// Calls `serve` with each new connection and its remote address, in a new thread.
template <class Serve>
void accept_all(ListeningSocket socket, Serve serve) {
  in_background([socket = std::move(socket), serve] {
    for (;;) {
      sockaddr_storage from = {};
      socklen_t size = sizeof from;
      const int made = ::accept4(socket.descriptor(), reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC);
      if (made < 0) {
        if (errno != EINTR && errno != ECONNABORTED) std::this_thread::sleep_for(std::chrono::milliseconds(50));
        continue;
      }
      std::array<char, NI_MAXHOST> name = {};
      ::getnameinfo(reinterpret_cast<sockaddr*>(&from), size, name.data(), name.size(), nullptr, 0, NI_NUMERICHOST);
      auto connection = std::make_shared<Connection>(made);
      try {
        in_background([serve, connection, who = std::string(name.data())] { serve(*connection, who); });
      } catch (const std::system_error&) {
        continue;  // no thread available: the connection is closed
      }
    }
  });
}

void report_stranger(const std::string& who, const std::string& problem) {
  const ExitLock lock;
  if (!lock.owns_lock()) return;
  Console::instance().warn("a stranger at " + who + " tried to join the ranks and was refused: it " + problem + ".");
  static std::once_flag first;
  std::call_once(first, guard_exit);  // the first warning has initialized the console
}

// Rank 0's side: each visitor has its own thread and ten seconds, so that none delays another.
void open_gate(ListeningSocket outside, int64_t store_port, const std::string& secret) {
  const auto visitors = std::make_shared<std::atomic<int>>(0);
  accept_all(std::move(outside), [store_port, secret, visitors](const Connection& visitor, const std::string& who) {
    std::string problem =
        "connected while " + std::to_string(kMaxUnprovedConnections) + " others had not proved who they are";
    if (++*visitors <= kMaxUnprovedConnections) problem = verify_secret(visitor.descriptor(), secret, kVisit);
    --*visitors;
    if (!problem.empty()) return report_stranger(who, problem);
    const Connection store = connect_to("127.0.0.1", store_port);
    if (store) relay(visitor, store);
  });
}

std::string place_of(const World& world) {
  return world.master_address + ", port " + std::to_string(world.master_port);
}

// Connects through the gate; rank 0 may not have started yet.
Connection enter(const World& world, const std::string& secret, std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  for (;;) {
    Connection connection = connect_to(world.master_address, world.master_port);
    if (connection) {
      const std::string problem = prove_secret(connection.descriptor(), secret, kVisit);
      if (problem.empty()) return connection;
      throw Error("rank 0 listens at " + place_of(world) + ", but " + problem);
    }
    if (Clock::now() >= deadline) {
      throw Error("nothing has listened at " + place_of(world) + " for " + std::to_string(timeout.count() / 1000) +
                  " s: " + std::strerror(errno) + ".");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

// The other ranks' side: returns the loopback port that is forwarded through the gate.
int64_t open_tunnel(const World& world, const std::string& secret, std::chrono::milliseconds timeout) {
  (void)enter(world, secret, timeout);  // a wrong secret is detected here, where it can be reported
  ListeningSocket inside("127.0.0.1", 0);
  const int64_t port = inside.port();
  accept_all(std::move(inside), [world, secret, timeout](const Connection& own, const std::string&) {
    try {
      relay(own, enter(world, secret, timeout));
    } catch (const std::exception& error) {
      const ExitLock lock;
      if (lock.owns_lock()) Console::instance().error(error.what());
    }
  });
  return port;
}

// Rank 0's socket, at an address that only the other ranks should reach. `elsewhere`: the address that they were given
// does not belong to this machine.
ListeningSocket listen_for_ranks(const World& world, bool& elsewhere) {
  const std::string numbers = first_address(world.master_address);
  const bool meant = world.master_address == numbers || world.master_address == "localhost";
  std::string reason = " resolves to this machine's loopback (" + numbers + ") here";
  if (world.num_nodes == 1 || meant || !is_loopback_address(numbers)) {
    int refusal = 0;
    try {
      return ListeningSocket(world.master_address, world.master_port, &refusal);
    } catch (const Error&) {
      if (refusal != EADDRNOTAVAIL) throw;
      reason = " is not an address of this machine (a forwarded one?)";
    }
  }
  elsewhere = true;
  Console::instance().warn(world.master_address + reason +
                           ", so rank 0 listens at all addresses of this machine, port " +
                           std::to_string(world.master_port) + ". Set one of its own addresses as MASTER_ADDR.");
  return ListeningSocket(numbers.find(':') != std::string::npos ? "::" : "0.0.0.0", world.master_port);
}

bool is_local_job(const World& world) {
  return world.num_nodes == 1 || is_loopback_address(first_address(world.master_address));
}

}  // namespace

StoreAddress reach_store(const World& world, std::chrono::milliseconds timeout) {
  const std::string secret = shared_secret(process_variables());
  if (secret.empty()) return {.host = world.master_address, .port = world.master_port};
  return {.host = "127.0.0.1", .port = open_tunnel(world, secret, timeout), .is_proved = true};
}

StoreAddress open_store_address(const World& world, std::chrono::milliseconds timeout) {
  if (world.rank != 0) return reach_store(world, timeout);
  const std::string secret = shared_secret(process_variables());
  StoreAddress own = {.host = world.master_address};
  ListeningSocket outside = listen_for_ranks(world, own.is_elsewhere);
  own.port = outside.port();
  if (!secret.empty() && world.size > 1) {
    ListeningSocket inside("127.0.0.1", 0);
    own.host = "127.0.0.1";
    own.port = inside.port();
    open_gate(std::move(outside), own.port, secret);
    own.listening = inside.release();
    return own;
  }
  if (world.size > 1 && !is_local_job(world)) {
    Console::instance().warn("ranks connect at " + place_of(world) +
                             " without a shared secret: any program that reaches that port can join them. Set "
                             "LEVIN_SECRET, or LEVIN_SECRET_FILE, to the same secret on all nodes.");
  }
  if (own.is_elsewhere) own.host = "127.0.0.1";
  own.listening = outside.release();
  return own;
}

namespace {

using Clock = std::chrono::steady_clock;
using Block = std::array<unsigned char, 32>;

constexpr size_t kShortest = 16;
constexpr std::array<char, 8> kGreeting{'L', 'E', 'V', 'I', 'N', ' ', '1', '\n'};
constexpr const char* kHow = "Make one with \"openssl rand -hex 32\" and set the same on all nodes.";

enum class Reading { done, closed, late };

// Reads `size` bytes before `deadline`, however slowly they arrive.
Reading read_all(int connection, void* to, size_t size, Clock::time_point deadline) {
  auto* at = static_cast<char*>(to);
  while (size > 0) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd waiting = {connection, POLLIN, 0};
    const int ready = left > 0 ? ::poll(&waiting, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return Reading::late;
    const ssize_t got = ::recv(connection, at, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Reading::closed;
    at += got;
    size -= static_cast<size_t>(got);
  }
  return Reading::done;
}

// The data fits in a socket's buffer, so this never blocks on a new connection.
bool write_all(int connection, const void* from, size_t size) {
  return ::send(connection, from, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
}

Block random_block() {
  Block block = {};
  if (::getrandom(block.data(), block.size(), 0) != static_cast<ssize_t>(block.size())) {
    throw Error("shared secret: getrandom() failed on this machine.");
  }
  return block;
}

// The functions of libcrypto that a shared secret needs. Opened by the first, so that other programs do without
// OpenSSL.
struct Crypto {
  SharedLibrary library{"libcrypto.so.3", "shared secret", "Install OpenSSL 3 (Debian: libssl3)."};
  unsigned char* (*hmac)(const void* method, const void* key, int key_size, const unsigned char* text, size_t size,
                         unsigned char* result, unsigned int* result_size) = nullptr;
  const void* (*sha256)() = nullptr;
  int (*memcmp)(const void* one, const void* other, size_t size) = nullptr;
  void (*thread_stop)() = nullptr;

  Crypto() {
    library.find(hmac, "HMAC");
    library.find(sha256, "EVP_sha256");
    library.find(memcmp, "CRYPTO_memcmp");
    library.find(thread_stop, "OPENSSL_thread_stop");
  }
};

const Crypto& crypto() {
  static const auto* functions = new Crypto;  // never destroyed: threads may still use it at the process's end
  return *functions;
}

Block proof(const std::string& secret, const char* who, const Block& first, const Block& second) {
  std::string text = who;
  text.append(reinterpret_cast<const char*>(first.data()), first.size());
  text.append(reinterpret_cast<const char*>(second.data()), second.size());
  Block result = random_block();  // matches no proof
  const ExitLock lock;
  if (!lock.owns_lock()) return result;
  unsigned int size = 0;
  crypto().hmac(crypto().sha256(), secret.data(), static_cast<int>(secret.size()),
                reinterpret_cast<const unsigned char*>(text.data()), text.size(), result.data(), &size);
  // What libcrypto keeps for this thread is freed here: at the thread's end, exit() may be freeing it too.
  crypto().thread_stop();
  return result;
}

bool same(const Block& one, const Block& other) {
  return crypto().memcmp(one.data(), other.data(), one.size()) == 0;  // in constant time
}

struct Hello {
  std::array<char, 8> greeting = kGreeting;
  Block number = {};
};
struct Answer {
  Block number = {};
  Block proof = {};
};

}  // namespace

std::string shared_secret(const Variables& variables) {
  std::string secret = variables("LEVIN_SECRET").value_or("");
  std::string name = "LEVIN_SECRET";
  if (const auto path = variables("LEVIN_SECRET_FILE"); secret.empty() && path) {
    name = "LEVIN_SECRET_FILE";
    std::ifstream file(*path, std::ios::binary);
    secret.assign(std::istreambuf_iterator<char>(file), {});
    if (!file && secret.empty()) {
      throw ConfigError("environment: LEVIN_SECRET_FILE is \"" + cut_text(*path) +
                        "\", which cannot be read: " + std::strerror(errno) + ".");
    }
    while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  } else if (secret.empty()) {
    return "";
  }
  (void)proof(secret, "", {}, {});  // initializes libcrypto, which is destroyed at exit
  guard_exit();
  if (secret.size() >= kShortest) return secret;
  throw ConfigError("environment: the secret in " + name + " has " + count_of(secret.size(), "character") +
                    ", fewer than " + std::to_string(kShortest) + ": it could be guessed. " + kHow);
}

std::string verify_secret(int connection, const std::string& secret, std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  Hello hello;
  hello.number = random_block();
  Answer answer;
  if (!write_all(connection, &hello, sizeof hello)) return "closed the connection";
  switch (read_all(connection, &answer, sizeof answer, deadline)) {
    case Reading::late: return "did not prove within " + readable_duration(timeout) + " that it has the secret";
    case Reading::closed: return "closed the connection";
    case Reading::done: break;
  }
  if (!same(answer.proof, proof(secret, "rank", hello.number, answer.number))) return "does not have the secret";
  const Block own = proof(secret, "rank 0", hello.number, answer.number);
  return write_all(connection, own.data(), own.size()) ? "" : "closed the connection";
}

std::string prove_secret(int connection, const std::string& secret, std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  Hello hello;
  if (read_all(connection, &hello, sizeof hello, deadline) != Reading::done || hello.greeting != kGreeting) {
    return "it does not require the secret. Is LEVIN_SECRET or LEVIN_SECRET_FILE set there too?";
  }
  Answer answer;
  answer.number = random_block();
  answer.proof = proof(secret, "rank", hello.number, answer.number);
  Block theirs = {};
  if (!write_all(connection, &answer, sizeof answer) ||
      read_all(connection, theirs.data(), theirs.size(), deadline) != Reading::done) {
    return std::string("it rejects this rank's secret (LEVIN_SECRET or LEVIN_SECRET_FILE). ") + kHow;
  }
  if (!same(theirs, proof(secret, "rank 0", hello.number, answer.number))) {
    return "it does not have the secret itself: another program listens there.";
  }
  return "";
}

}  // namespace levin
