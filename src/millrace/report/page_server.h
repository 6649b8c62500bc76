// Serves one page to browsers of this machine.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace millrace::report {

// Listens only on the loopback address 127.0.0.1, and answers only requests that name the page's random path. So another user
// of the machine can reach the port, but not the page. Handles one connection at a time, with a limit on its time and bytes.
// Use it from one thread.
class PageServer {
 public:
  // `port` 0: any free port. Throws UsageError if the port is taken or not allowed.
  explicit PageServer(std::uint16_t port);
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  [[nodiscard]] std::string address() const;  // "http://127.0.0.1:8765/3f…/"
  void set_page(std::string html) { page_ = std::move(html); }
  // Answers requests until the time `until`, or until `stop` returns true. `stop` is called several times a second.
  void serve(std::chrono::steady_clock::time_point until, const std::function<bool()>& stop) const;

 private:
  void answer(int connection, const std::function<bool()>& stop) const;

  int socket_ = -1;
  std::uint16_t port_ = 0;
  std::string path_;  // "/3f…/"
  std::string page_;
};

}  // namespace millrace::report
