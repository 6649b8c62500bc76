#include "millrace/distributed/meeting_point.h"

#include <chrono>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/distributed/detail/address.h"

namespace millrace::distributed {
namespace {

std::string key_of(int attempt) { return "failed/" + std::to_string(attempt); }

DistributedError gone(const MeetingPoint::Place& place, const std::string& what) {
  return DistributedError(
      {what, place.host + ":" + std::to_string(place.port),
       "see whether millrace launch runs there with the same --nodes, and whether a firewall lets the port through"});
}

}  // namespace

struct MeetingPoint::Parts {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

MeetingPoint::MeetingPoint(Place place, bool serves, double wait_s)
    : place_(std::move(place)), parts_(std::make_unique<Parts>()) {
  c10d::TCPStoreOptions options;
  options.isServer = serves;
  if (serves) options.masterListenFd = listen_on(place_.host, place_.port);
  options.port = static_cast<std::uint16_t>(place_.port);
  options.waitWorkers = false;
  options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(wait_s * 1000));
  try {
    parts_->store = c10::make_intrusive<c10d::TCPStore>(place_.host, options);
  } catch (const std::exception&) {
    throw gone(place_, "no launcher answered at the meeting point");
  }
}

MeetingPoint::~MeetingPoint() = default;

void MeetingPoint::announce(int attempt, const std::string& text) {
  try {
    parts_->store->compareSet(key_of(attempt), {}, {text.begin(), text.end()});
  } catch (const std::exception&) {  // the launcher that held it has ended, and with it all other machines' ranks
  }
}

std::optional<std::string> MeetingPoint::announced(int attempt) {
  try {
    if (!parts_->store->check({key_of(attempt)})) return std::nullopt;
    const std::vector<std::uint8_t> text = parts_->store->get(key_of(attempt));
    return std::string(text.begin(), text.end());
  } catch (const std::exception&) {
    throw gone(place_, "the launcher that holds the meeting point is gone");
  }
}

}  // namespace millrace::distributed
