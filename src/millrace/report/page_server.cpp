#include "millrace/report/page_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <random>
#include <string_view>

#include "millrace/base/error.h"

namespace millrace::report {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostRequest = 16'384;  // bytes
// kToAsk: limit for a request; kToTake: limit for an answer, enough for two megabytes over a slow line
constexpr std::chrono::seconds kToAsk(2), kToTake(60);
constexpr int kLookMs = 100;
constexpr int kWaiting = 16;  // number of waiting connections

// Waits for `events` on `descriptor`. Returns false if the time `until` has come or `stop` returned true.
bool wait_for(int descriptor, short events, Clock::time_point until, const std::function<bool()>& stop) {
  while (!stop()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) return false;
    pollfd ready{.fd = descriptor, .events = events, .revents = 0};
    if (::poll(&ready, 1, static_cast<int>(std::min<std::int64_t>(left, kLookMs))) > 0) return true;
  }
  return false;
}

// The head of a request; nullopt if the head is too long or arrives too slowly, or if the browser disconnected.
std::optional<std::string> head_of(int connection, const std::function<bool()>& stop) {
  const auto until = Clock::now() + kToAsk;
  std::string head;
  while (head.find("\r\n\r\n") == std::string::npos) {
    std::array<char, 2048> bytes{};
    if (head.size() > kMostRequest || !wait_for(connection, POLLIN, until, stop)) return std::nullopt;
    const ssize_t count = ::recv(connection, bytes.data(), bytes.size(), 0);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return std::nullopt;
    if (count > 0) head.append(bytes.data(), static_cast<std::size_t>(count));
  }
  return head;
}

void send_all(int connection, std::string_view bytes, const std::function<bool()>& stop) {
  const auto until = Clock::now() + kToTake;
  while (!bytes.empty() && wait_for(connection, POLLOUT, until, stop)) {
    const ssize_t count = ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0 && errno != EAGAIN && errno != EINTR) return;
    if (count > 0) bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

// The value of a header, in lower case; "" if it is missing.
std::string header_in(std::string_view head, std::string_view name) {
  std::string small(head);
  std::ranges::transform(small, small.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  const std::string mark = "\r\n" + std::string(name) + ":";
  const std::size_t at = small.find(mark);
  if (at == std::string::npos) return "";
  const std::size_t begin = small.find_first_not_of(" \t", at + mark.size()), end = small.find("\r\n", at + 2);
  return begin < end ? small.substr(begin, small.find_last_not_of(" \t\r", end - 1) + 1 - begin) : "";
}

// True if the request names this machine by its loopback name or address. A page of another site can make a browser send
// requests here under another host name that leads to 127.0.0.1. Such requests are refused.
bool names_this_machine(std::string_view host) {
  const std::string_view name = host.substr(0, host.rfind(':'));
  return name == "127.0.0.1" || name == "localhost";
}

std::string response(std::string_view status, std::string_view type, std::string_view body, bool with_body) {
  std::string text = "HTTP/1.1 " + std::string(status) + "\r\nContent-Type: " + std::string(type) +
                     "; charset=utf-8\r\nContent-Length: " + std::to_string(body.size()) +
                     "\r\nConnection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
                     "Referrer-Policy: no-referrer\r\nContent-Security-Policy: default-src 'none'; img-src data:; "
                     "style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'\r\n\r\n";
  return with_body ? text.append(body) : text;
}

std::string random_path() {
  constexpr std::string_view kDigits = "0123456789abcdef";
  constexpr int kLength = 32;
  std::random_device random;  // the path is drawn from the system's random numbers, so that nobody can guess it
  std::string path = "/";
  for (int i = 0; i < kLength; ++i) path += kDigits[random() % kDigits.size()];
  return path + "/";
}

class Connection {
 public:
  explicit Connection(int descriptor) noexcept : descriptor_(descriptor) {}
  ~Connection() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace

PageServer::PageServer(std::uint16_t port) : path_(random_path()) {
  socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int again = 1;  // lets the server use the port of a server that has just ended
  socklen_t size = sizeof address;
  const bool works = socket_ >= 0 && ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &again, sizeof again) == 0 &&
                     ::bind(socket_, reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
                     ::listen(socket_, kWaiting) == 0 &&
                     ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (!works) {
    const std::string why = std::strerror(errno);
    if (socket_ >= 0) ::close(socket_);
    throw UsageError({"can't listen on port " + std::to_string(port) + " of 127.0.0.1: " + why, "--port",
                      "choose another port, or leave out --port to use any free port"});
  }
  port_ = ntohs(address.sin_port);
}

PageServer::~PageServer() { ::close(socket_); }

std::string PageServer::address() const { return "http://127.0.0.1:" + std::to_string(port_) + path_; }

void PageServer::serve(Clock::time_point until, const std::function<bool()>& stop) const {
  while (wait_for(socket_, POLLIN, until, stop)) {
    const Connection connection(::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection.descriptor() >= 0) answer(connection.descriptor(), stop);
  }
}

void PageServer::answer(int connection, const std::function<bool()>& stop) const {
  const auto head = head_of(connection, stop);
  if (!head) return;
  const std::string_view line = std::string_view(*head).substr(0, head->find("\r\n"));
  const std::string_view method = line.substr(0, line.find(' '));
  const bool with_body = method == "GET";
  std::string_view path = line.size() > method.size() ? line.substr(method.size() + 1) : "";
  path = path.substr(0, std::min(path.find(' '), path.find('?')));
  if (!with_body && method != "HEAD")
    return send_all(connection, response("405 Method Not Allowed", "text/plain", "only GET\n", true), stop);
  if (!names_this_machine(header_in(*head, "host")) || path != path_)
    return send_all(
        connection,
        response("404 Not Found", "text/plain", "no such page: see the address that millrace report printed\n", with_body), stop);
  send_all(connection, response("200 OK", "text/html", page_, with_body), stop);
}

}  // namespace millrace::report
