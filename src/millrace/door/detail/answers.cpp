#include "millrace/door/detail/answers.h"

#include <utility>

namespace millrace::door::detail {
namespace {

thread_local std::string said;    // the latest text that this thread received
thread_local std::string failed;  // the latest failure that this thread received

}  // namespace

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

const char* say(std::string text) {
  said = std::move(text);
  return said.c_str();
}

void keep_failure(std::string_view kind, const Message& message) {
  failed = text_of({{"kind", kind}, {"what", message.what}, {"where", message.where}, {"next", message.next}});
}

void keep_failure(const ConfigError& error) {
  if (error.problems().size() == 1) return keep_failure(error.kind(), error.message());
  Message all{.what = std::to_string(error.problems().size()) + " mistakes"};
  for (const Problem& problem : error.problems()) {
    const std::string rest =
        (problem.where.empty() ? "" : " (" + problem.where + ")") + (problem.next.empty() ? "" : ": " + problem.next);
    all.what += "\n" + problem.what + rest;
  }
  keep_failure(error.kind(), all);
}

const std::string& failure() { return failed; }

}  // namespace millrace::door::detail
