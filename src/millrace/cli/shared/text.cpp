#include "millrace/cli/shared/text.h"

#include <cstdio>

namespace millrace::cli {
void print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void print_json(const Json& value) { print(value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"); }

void print_json_line(const Json& value) {
  print(value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  std::fflush(stdout);
}

Error output_error() {
  return {"FileError", {"the output could not be written", "", "check the disk or the program behind the pipe"}, 1};
}

}  // namespace millrace::cli
