#include "levin/strategies/launch/shared_secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "levin/core/count_of.h"
#include "levin/core/duration.h"
#include "levin/core/error.h"
#include "levin/strategies/launch/exit_guard.h"

namespace levin {

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

Block proof(const std::string& secret, const char* who, const Block& first, const Block& second) {
  std::string text = who;
  text.append(reinterpret_cast<const char*>(first.data()), first.size());
  text.append(reinterpret_cast<const char*>(second.data()), second.size());
  Block result = random_block();  // matches no proof
  const auto lock = before_exit();
  if (!lock.owns_lock()) return result;
  unsigned int size = 0;
  ::HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
         reinterpret_cast<const unsigned char*>(text.data()), text.size(), result.data(), &size);
  // What libcrypto keeps for this thread is freed here: at the thread's end, exit() may be freeing it too.
  ::OPENSSL_thread_stop();
  return result;
}

bool same(const Block& one, const Block& other) {
  return ::CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;  // in constant time
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
