#include "millrace/distributed/meeting_point.h"

#include <chrono>
#include <cstdint>
#include <future>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "millrace/base/clock.h"
#include "millrace/base/error.h"
#include "millrace/distributed/detail/address.h"
#include "millrace/distributed/detail/within.h"

namespace millrace::distributed {
namespace {

std::string key_of(int attempt) { return "failed/" + std::to_string(attempt); }

DistributedError gone(const MeetingPoint::Address& address, const std::string& what) {
  return DistributedError(
      {what, address.host + ":" + std::to_string(address.port),
       "see whether millrace launch runs there with the same --nodes, and whether a firewall lets the port through"});
}

}  // namespace

struct MeetingPoint::Parts {
  c10::intrusive_ptr<c10d::TCPStore> store;
  std::future<std::optional<std::string>> question;  // the question that was sent but not answered yet
  double asked = 0;
};

MeetingPoint::MeetingPoint(Address address, bool serves, double wait_s)
    : address_(std::move(address)), parts_(std::make_unique<Parts>()) {
  c10d::TCPStoreOptions options;
  options.isServer = serves;
  if (serves) options.masterListenFd = listen_on(address_.host, address_.port);
  options.port = static_cast<std::uint16_t>(address_.port);
  options.waitWorkers = false;
  options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(wait_s * 1000));
  try {
    parts_->store = c10::make_intrusive<c10d::TCPStore>(address_.host, options);
  } catch (const std::exception&) {
    throw gone(address_, "no launcher answered at the meeting point");
  }
}

MeetingPoint::~MeetingPoint() = default;

// Errors are ignored, because a launcher that the announcement does not reach has ended with its ranks, or its link is broken.
void MeetingPoint::announce(int attempt, const std::string& text) {
  constexpr double kLimit = 1;
  try {
    within(kLimit, [store = parts_->store, attempt, text] {
      store->compareSet(key_of(attempt), {}, {text.begin(), text.end()});
      return true;
    });
  } catch (const std::exception&) {
  }
}

std::optional<std::string> MeetingPoint::announced(int attempt) {
  constexpr double kLimit = 10;
  if (is_gone_) return std::nullopt;
  if (!parts_->question.valid()) {
    parts_->asked = steady_seconds();
    parts_->question = in_background([store = parts_->store, attempt]() -> std::optional<std::string> {
      if (!store->check({key_of(attempt)})) return std::nullopt;
      const std::vector<std::uint8_t> text = store->get(key_of(attempt));
      return std::string(text.begin(), text.end());
    });
  }
  if (parts_->question.wait_for(std::chrono::milliseconds(0)) != std::future_status::ready) {
    if (steady_seconds() - parts_->asked > kLimit)
      throw gone(address_, "the launcher that holds the meeting point does not answer");
    return std::nullopt;
  }
  try {
    return parts_->question.get();
  } catch (const std::exception&) {
    is_gone_ = true;
    return std::nullopt;
  }
}

}  // namespace millrace::distributed
