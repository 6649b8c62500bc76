// The store in which the ranks meet. The program that starts the ranks holds the store. So the store survives the end of any
// rank, and its port is known before any rank connects.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace millrace::distributed {

class MeetingPoint {
 public:
  struct Address {
    std::string host;
    int port = 0;  // 0 = any free port
  };
  // `serves`: this launcher holds the store. Otherwise the constructor waits up to `wait_s` seconds for the launcher that holds
  // it. Throws DistributedError if the port is taken, the host is another machine, or the wait fails.
  MeetingPoint(Address address, bool serves, double wait_s);
  ~MeetingPoint();
  MeetingPoint(const MeetingPoint&) = delete;
  MeetingPoint& operator=(const MeetingPoint&) = delete;

  [[nodiscard]] const Address& address() const noexcept { return address_; }
  // Announces to the launchers of all machines that a rank of this machine failed. Only the first text of each attempt is kept.
  void announce(int attempt, const std::string& text);
  // Returns a text that some machine announced, if the answer has already arrived; never waits. Throws DistributedError if the
  // launcher that holds the store has not answered for ten seconds.
  [[nodiscard]] std::optional<std::string> announced(int attempt);
  // True if the launcher that holds the store has ended. That launcher may have finished the run earlier than this launcher.
  // Ranks that lose the connection to other ranks fail by themselves.
  [[nodiscard]] bool is_gone() const noexcept { return is_gone_; }

 private:
  struct Parts;
  Address address_;
  std::unique_ptr<Parts> parts_;
  bool is_gone_ = false;
};

}  // namespace millrace::distributed
