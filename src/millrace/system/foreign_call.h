// What a thread does in code that is not Millrace's, a recipe's callback or a source's read(), for the report of a crash there.
#pragma once

#include <string_view>

#include "millrace/system/handler_text.h"

namespace millrace {

// Says until its destruction what this thread calls; calls nest. Costs two stores: it is put into words only by a signal handler.
class ForeignCall {
 public:
  // Adds "loss() of recipe mine, training batch 3 of epoch 0" to the text, in a signal handler.
  using Describe = void (*)(const void* call, HandlerText& text) noexcept;
  ForeignCall(Describe describe, const void* call) noexcept;  // `call` is handed to `describe` and lives as long as this
  explicit ForeignCall(const char* words) noexcept;           // live as long as this
  ~ForeignCall();
  ForeignCall(const ForeignCall&) = delete;
  ForeignCall& operator=(const ForeignCall&) = delete;

  // Adds this thread's innermost call; false if there is none. For signal handlers.
  static bool describe_here(HandlerText& text) noexcept;

 private:
  Describe describe_;
  const void* call_;
  const ForeignCall* outer_;
};

}  // namespace millrace
