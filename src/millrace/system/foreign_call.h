// Records calls of code that is not Millrace's, such as a recipe's callback or a source's read(), so that the report of a crash
// there names the call.
#pragma once

#include <string_view>

#include "millrace/system/handler_text.h"

namespace millrace {

// While this object exists, it records the call that this thread makes. Objects may nest. It costs two stores, because only a
// signal handler makes the text.
class ForeignCall {
 public:
  // Adds "loss() of recipe mine, training batch 3 of epoch 0" to the text, in a signal handler.
  using Describe = void (*)(const void* call, HandlerText& text) noexcept;
  ForeignCall(Describe describe, const void* call) noexcept;  // `describe` gets `call`, which must live as long as this object
  explicit ForeignCall(const char* words) noexcept;           // `words` must live as long as this object
  ~ForeignCall();
  ForeignCall(const ForeignCall&) = delete;
  ForeignCall& operator=(const ForeignCall&) = delete;

  // Adds a description of this thread's innermost call; false if there is no call. For signal handlers.
  static bool describe_here(HandlerText& text) noexcept;

 private:
  Describe describe_;
  const void* call_;
  const ForeignCall* outer_;
};

}  // namespace millrace
