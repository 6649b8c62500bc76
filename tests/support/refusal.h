// The error that a call throws, as a value for a test to compare. Header only, so that every test program can use it.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "millrace/base/error.h"

namespace millrace {

// Returns the parts of the exception E that `call` throws. If `call` throws nothing, `what` is "accepted". Errors of other types
// pass through.
template <class E = Error, class Call>
Message refusal_message(const Call& call) {
  try {
    call();
  } catch (const E& error) {
    return error.message();
  }
  return {.what = "accepted", .where = "", .next = ""};
}

// Returns the whole text of the exception E that `call` throws; "accepted" if `call` throws nothing.
template <class E = Error, class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "accepted";
}

// Returns the first part of the exception E that `call` throws. That exception must also say what to do next and, if `where` is
// given, where it happened.
template <class E = Error, class Call>
std::string refusal_reason(const Call& call, const std::string& where = "") {
  try {
    call();
  } catch (const E& error) {
    EXPECT_FALSE(error.message().next.empty()) << error.what();
    EXPECT_TRUE(where.empty() || error.message().where == where) << error.what();
    return error.message().what;
  }
  return "accepted";
}

}  // namespace millrace
