// Serves one page to browsers of this machine.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace millrace::report {

// Listens on the loopback address 127.0.0.1 alone, and answers only requests that name the page's random path: another user of
// the machine can reach the port, but not the page. One connection at a time, and each has a limit of time and bytes. Used by one
// thread.
class PageServer {
 public:
  // `port` 0: a free one. UsageError if the port is taken or not allowed.
  explicit PageServer(std::uint16_t port);
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  [[nodiscard]] std::string address() const;  // "http://127.0.0.1:8765/3f…/"
  void set_page(std::string html) { page_ = std::move(html); }
  // Answers requests until `until`, or until `stop` returns true; it is called several times a second.
  void serve(std::chrono::steady_clock::time_point until, const std::function<bool()>& stop) const;

 private:
  void answer(int connection, const std::function<bool()>& stop) const;

  int socket_ = -1;
  std::uint16_t port_ = 0;
  std::string path_;  // "/3f…/"
  std::string page_;
};

}  // namespace millrace::report
