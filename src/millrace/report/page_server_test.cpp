#include "millrace/report/page_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "millrace/base/error.h"

namespace millrace::report {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr auto kForEver = std::chrono::steady_clock::time_point::max();

// Serves a page until it is destroyed.
class Serving {
 public:
  explicit Serving(std::string page) {
    server_.set_page(std::move(page));
    thread_ = std::thread([this] { server_.serve(kForEver, [this] { return ends_.load(); }); });
  }
  ~Serving() {
    ends_ = true;
    thread_.join();
  }
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;

  [[nodiscard]] const PageServer& server() const { return server_; }
  [[nodiscard]] std::string path() const { return server_.address().substr(server_.address().find('/', 7)); }
  // Everything that the server sends until it closes the connection.
  [[nodiscard]] std::string answer(const std::string& request) const {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server_.port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    (void)::send(socket, request.data(), request.size(), MSG_NOSIGNAL);
    ::shutdown(socket, SHUT_WR);
    std::string text;
    std::array<char, 65'536> bytes{};
    for (ssize_t count = 0; (count = ::recv(socket, bytes.data(), bytes.size(), 0)) > 0;)
      text.append(bytes.data(), static_cast<std::size_t>(count));
    ::close(socket);
    return text;
  }
  [[nodiscard]] std::string get(const std::string& path, const std::string& host = "localhost:1234") const {
    return answer("GET " + path + " HTTP/1.1\r\nAccept: */*\r\nhost: " + host + "\r\n\r\n");
  }

 private:
  PageServer server_{0};
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

TEST(PageServer, GivesThePageToWhoeverKnowsItsPath) {
  const std::string page = "<p>é</p>" + std::string(3'000'000, 'x');
  const Serving serving(page);
  EXPECT_THAT(serving.server().address(), testing::MatchesRegex("http://127\\.0\\.0\\.1:[0-9]+/[0-9a-f]+/"));
  const std::string answer = serving.get(serving.path());
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Length: " + std::to_string(page.size()) + "\r\n"));
  EXPECT_TRUE(answer.ends_with("\r\n\r\n" + page));
  EXPECT_THAT(serving.get(serving.path() + "?a=b", "127.0.0.1"), StartsWith("HTTP/1.1 200"));
  const std::string head = serving.answer("HEAD " + serving.path() + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200"));
  EXPECT_TRUE(head.ends_with("\r\n\r\n"));
}

TEST(PageServer, RefusesOtherPathsNamesAndMethods) {
  const Serving serving("secret");
  const std::string good = serving.path();
  for (const std::string& path : {std::string("/"), std::string(""), good.substr(0, good.size() - 1), good + "x", "/.." + good}) {
    EXPECT_THAT(serving.get(path), testing::AllOf(StartsWith("HTTP/1.1 404"), Not(HasSubstr("secret")))) << path;
  }
  for (const char* host : {"evil.example:80", "127.0.0.1.evil.example", ""})
    EXPECT_THAT(serving.get(good, host), testing::AllOf(StartsWith("HTTP/1.1 404"), Not(HasSubstr("secret")))) << host;
  EXPECT_THAT(serving.answer("POST " + good + " HTTP/1.1\r\nHost: localhost\r\n\r\n"), StartsWith("HTTP/1.1 405"));
}

TEST(PageServer, OutlivesBadRequests) {
  const Serving serving("page");
  for (const std::string& request : {std::string(), std::string("\r\n\r\n"), std::string("GET"), std::string(40'000, 'x'),
                                     std::string("\0\xff\r\n\r\n", 6), "GET " + serving.path() + " HTTP/1.1\r\n"})
    EXPECT_THAT(serving.answer(request), Not(HasSubstr("page\""))) << request.size();
  EXPECT_THAT(serving.get(serving.path()), testing::EndsWith("\r\n\r\npage"));
}

TEST(PageServer, SaysThatAPortIsTaken) {
  const PageServer first(0);
  try {
    const PageServer second(first.port());
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("can't listen on port " + std::to_string(first.port()) + " of 127.0.0.1"));
    EXPECT_THAT(error.what(), HasSubstr("--port"));
  }
}

}  // namespace
}  // namespace millrace::report
