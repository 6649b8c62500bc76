#include "millrace/system/foreign_call.h"

#include <atomic>
#include <utility>

namespace millrace {
namespace {

// Programs link this library statically, so a handler need not wait for a thread's variables to be allocated.
thread_local const ForeignCall* innermost = nullptr;

void add_words(const void* words, HandlerText& text) noexcept { text.add(static_cast<const char*>(words)); }

}  // namespace

ForeignCall::ForeignCall(Describe describe, const void* call) noexcept : describe_(describe), call_(call), outer_(innermost) {
  std::atomic_signal_fence(std::memory_order_release);
  innermost = this;
  std::atomic_signal_fence(std::memory_order_release);
}

ForeignCall::ForeignCall(const char* words) noexcept : ForeignCall(&add_words, words) {}

ForeignCall::~ForeignCall() {
  innermost = outer_;
  std::atomic_signal_fence(std::memory_order_release);
}

bool ForeignCall::describe_here(HandlerText& text) noexcept {
  const ForeignCall* const call = innermost;
  if (call == nullptr) return false;
  call->describe_(call->call_, text);
  return true;
}

}  // namespace millrace
