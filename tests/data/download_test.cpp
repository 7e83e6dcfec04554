#include "levin/data/sets/download.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "data/http_server.h"
#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::download_test {
namespace {

using test::error_of;
using test::holds;
using test::HttpServer;
using test::TemporaryFolder;

const std::string kBody(300000, 'x');

DownloadOptions quick(Checksum checksum = {}) {
  return {.checksum = std::move(checksum), .attempts = 3, .first_pause = Seconds(0.01), .stall_timeout = Seconds(2)};
}

TEST(Download, FetchesAWholeFileIntoANewFolder) {
  const TemporaryFolder folder;
  const HttpServer server({HttpServer::answer("abc")});
  const std::string path = folder / "a/b/abc";
  download(server.url() + "abc", path, quick({Checksum::Kind::md5, "900150983cd24fb0d6963f7d28e17f72"}));
  EXPECT_EQ(read_file(path), "abc");
  EXPECT_EQ(server.requests(), 1);
}

TEST(Download, TriesAgainAfterACutConnectionAndABusyServer) {
  const TemporaryFolder folder;
  const HttpServer server({HttpServer::cut(kBody), HttpServer::answer("", "503 Busy"), HttpServer::answer(kBody)});
  download(server.url(), folder / "x", quick());
  EXPECT_EQ(read_file(folder / "x"), kBody);
  EXPECT_EQ(server.requests(), 3);
  EXPECT_EQ(folder.names().size(), 1U);
}

TEST(Download, TriesAgainAfterTheServersTimeout) {
  const TemporaryFolder folder;
  const HttpServer server({HttpServer::answer("", "408 Request Timeout"), HttpServer::answer(kBody)});
  download(server.url(), folder / "x", quick());
  EXPECT_EQ(read_file(folder / "x"), kBody);
}

TEST(Download, GivesUpOnAConnectionThatIsAlwaysCut) {
  const TemporaryFolder folder;
  const HttpServer server({HttpServer::cut(kBody)});
  const std::string message = error_of<DataError>([&] { download(server.url(), folder / "x", quick()); });
  EXPECT_TRUE(holds(message, {server.url(), folder / "x", "after 150000 bytes", "attempt 3 of 3"}));
  EXPECT_EQ(server.requests(), 3);
  EXPECT_EQ(folder.names().size(), 0U);
}

TEST(Download, RefusesWrongBytesAndKeepsTheOldFile) {
  const TemporaryFolder folder;
  const HttpServer server({HttpServer::answer("abd")});
  const std::string path = folder.write("x", "old");
  const std::string expected = "900150983cd24fb0d6963f7d28e17f72";
  const std::string message = error_of<DataError>([&] {
    download(server.url(), path, quick({Checksum::Kind::md5, expected}));
  });
  EXPECT_TRUE(holds(
      message, {"3 of them", "expected MD5 900150983cd24fb0d6963f7d28e17f72", "got 4911e516e5aa21d327512e0c8b197616"}));
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(folder.names().size(), 1U);
}

TEST(Download, SendsNothingForAnAddressThatIsNone) {
  const TemporaryFolder folder;
  const HttpServer server({HttpServer::answer("abc")});
  const std::string path = folder / "x";
  for (const std::string name : {"a\r\nX-Evil: 1", "a\nb", "a b", "\x1b[2J", "\x7f"}) {
    EXPECT_TRUE(holds(error_of<DataError>([&] { download(server.url() + name, path, quick()); }),
                      {"cannot download", "attempt 1 of 3"}))
        << name;
  }
  for (const std::string url : {"file:///etc/passwd", "ftp://127.0.0.1/x", "-o/tmp/x", "$(touch x)", "`touch x`", ""}) {
    EXPECT_TRUE(holds(error_of<DataError>([&] { download(url, path, quick()); }), {"cannot download " + url})) << url;
  }
  EXPECT_EQ(server.requests(), 0);
  EXPECT_EQ(folder.names().size(), 0U);
}

TEST(Download, AsksForAHostileNameUnchanged) {
  const TemporaryFolder folder;
  const HttpServer server({HttpServer::answer("abc")});
  for (const std::string name : {"$(touch%20x)", "`id`", "a;b", "'", "%0a", "--x", "\xc3\xa9"}) {
    download(server.url() + name, folder / "x", quick());
    EXPECT_EQ(read_file(folder / "x"), "abc") << name;
  }
  EXPECT_EQ(folder.names().size(), 1U);
}

TEST(Download, DoesNotFollowAServerToADifferentProtocol) {
  const TemporaryFolder folder;
  const std::string secret = folder.write("secret", "s");
  for (const std::string& target : {"file://" + secret, std::string("ftp://127.0.0.1:9/x")}) {
    const HttpServer server(
        {"HTTP/1.1 302 Found\r\nLocation: " + target + "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"});
    EXPECT_TRUE(holds(error_of<DataError>([&] { download(server.url(), folder / "x", quick()); }),
                      {"cannot download", "attempt 1 of 3"}))
        << target;
  }
  EXPECT_EQ(folder.names().size(), 1U);
}

TEST(Download, NamesTheStatusOfAMissingFileAndAsksOnce) {
  const TemporaryFolder folder;
  const HttpServer server({HttpServer::answer("no such page", "404 Not Found")});
  EXPECT_TRUE(holds(error_of<DataError>([&] { download(server.url(), folder / "x", quick()); }),
                    {"HTTP status 404", "attempt 1 of 3"}));
  EXPECT_EQ(server.requests(), 1);
  EXPECT_EQ(folder.names().size(), 0U);
}

TEST(Download, NamesAServerThatIsNotThere) {
  const TemporaryFolder folder;
  std::string url;
  { url = HttpServer({""}).url(); }
  EXPECT_TRUE(holds(error_of<DataError>([&] { download(url, folder / "x", quick()); }),
                    {url, "connection failed", "attempt 3 of 3"}));
  EXPECT_TRUE(holds(error_of<DataError>([&] { download("file:///etc/hostname", folder / "x", quick()); }),
                    {"file:///etc/hostname", "attempt 1 of 3"}));
}

TEST(Download, RefusesMoreThanItsLimit) {
  const TemporaryFolder folder;
  const HttpServer server({HttpServer::answer(kBody)});
  DownloadOptions options = quick();
  options.max_bytes = 1000;
  EXPECT_TRUE(holds(error_of<DataError>([&] { download(server.url(), folder / "x", options); }), {"1000 bytes"}));
  EXPECT_EQ(folder.names().size(), 0U);
}

// A limit on file sizes needs no root and makes write() fail half-way, as a full disk does. It holds for a whole
// process, hence the child.
TEST(Download, NamesTheCauseWhenThereIsNoRoomAndLeavesNothing) {
  const TemporaryFolder folder;
  const HttpServer server({HttpServer::answer(kBody)});
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100000, 100000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      download(server.url(), folder / "x", quick());
    } catch (const DataError& error) {
      ::_exit(holds(error.what(), {"/x", "cannot write it: File too large", "attempt 1 of 3"}) ? 0 : 2);
    }
    ::_exit(3);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(folder.names().size(), 0U);
}

TEST(Download, ClosesItsFileHoweverItEnds) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "taken");  // a file cannot take its name
  const HttpServer server({HttpServer::answer(kBody)});
  // Of this folder alone: the server, a thread here, opens and closes sockets meanwhile.
  const auto open_files = [&] {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const auto target = std::filesystem::read_symlink(entry.path(), gone);
      if (!gone && target.string().starts_with(folder.path())) ++count;
    }
    return count;
  };
  const auto try_it = [&] {
    EXPECT_TRUE(holds(error_of<Error>([&] { download(server.url(), folder / "taken", quick()); }), {"taken"}));
    (void)error_of<Error>([&] { download(server.url(), folder / "x", quick({Checksum::Kind::md5, "0"})); });
  };
  const std::ofstream open_one(folder / "seen");
  ASSERT_EQ(open_files(), 1);  // so it would be seen
  for (int i = 0; i < 5; ++i) try_it();
  EXPECT_EQ(open_files(), 1);
}

TEST(Download, NamesAFolderThatCannotBeWritten) {
  const TemporaryFolder folder;
  const HttpServer server({HttpServer::answer("abc")});
  folder.write("file", "");
  EXPECT_TRUE(holds(error_of<Error>([&] { download(server.url(), folder / "file/x", quick()); }),
                    {folder / "file", "Not a directory"}));
  // /proc takes no new files, even from root.
  EXPECT_TRUE(holds(error_of<DataError>([&] { download(server.url(), "/proc/x", quick()); }),
                    {"/proc/x", "cannot create a file in its folder"}));
  EXPECT_EQ(server.requests(), 0);
}

}  // namespace
}  // namespace levin::download_test
