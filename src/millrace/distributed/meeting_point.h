// The store where the ranks meet, held by the program that starts them: no rank's end takes it away, and its port is found
// before any rank looks for it.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace millrace::distributed {

class MeetingPoint {
 public:
  struct Address {
    std::string host;
    int port = 0;  // 0 = one that is free
  };
  // `serves`: this launcher holds it; else it waits so long for the launcher that does. DistributedError: the port is taken, the
  // host is another machine, nobody came.
  MeetingPoint(Address address, bool serves, double wait_s);
  ~MeetingPoint();
  MeetingPoint(const MeetingPoint&) = delete;
  MeetingPoint& operator=(const MeetingPoint&) = delete;

  [[nodiscard]] const Address& address() const noexcept { return address_; }
  // A rank of this machine failed; told to the launchers of all machines. The first text of an attempt stays.
  void announce(int attempt, const std::string& text);
  // What was announced, by any machine, as far as the answer is here; never waits. DistributedError when the launcher that holds
  // the store has not answered for ten seconds.
  [[nodiscard]] std::optional<std::string> announced(int attempt);
  // That launcher has ended. It may have come to the end of the run before this one: ranks that miss others fail by themselves.
  [[nodiscard]] bool is_gone() const noexcept { return is_gone_; }

 private:
  struct Parts;
  Address address_;
  std::unique_ptr<Parts> parts_;
  bool is_gone_ = false;
};

}  // namespace millrace::distributed
