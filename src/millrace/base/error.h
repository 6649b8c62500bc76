// Errors in three parts: what went wrong, where, and what to do next. One class per kind, each with an exit code.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace {

// The three parts of every message a user sees. `where` and `next` may be empty; the line of an empty part is omitted.
struct Message {
  std::string what;
  std::string where;
  std::string next;
};

// Base of all errors Millrace throws. Exit code 1 (failed) unless a class says otherwise. what() is the whole text as the
// terminal shows it:
//   DataError  sample 18231 of a.h5 has shape [32,64,63], the batch expects [32,64,64]
//     where    field "vis", reader 3, step 412
//     next     repair or remove the file, or set data.bad_samples="skip"
class Error : public std::exception {
 public:
  Error(std::string_view kind, Message message, int exit_code);
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }
  [[nodiscard]] const Message& message() const noexcept { return message_; }
  [[nodiscard]] std::string_view kind() const noexcept { return kind_; }
  [[nodiscard]] int exit_code() const noexcept { return exit_code_; }

 protected:
  Error(std::string_view kind, Message message, int exit_code, std::string text);  // for a class that formats its text itself

 private:
  std::string kind_;
  Message message_;
  int exit_code_;
  std::string text_;
};

// "Kind  what\n  where    …\n  next     …" without a final newline; the second and later lines of a part are indented.
[[nodiscard]] std::string to_text(std::string_view kind, const Message& message);

// One problem in a config: `where` names the file and line, flag or variable it came from.
using Problem = Message;

// All problems of a config at once. Exit code 2.
class ConfigError : public Error {
 public:
  explicit ConfigError(Message message);
  explicit ConfigError(std::vector<Problem> problems);  // `problems` must not be empty
  [[nodiscard]] const std::vector<Problem>& problems() const noexcept { return problems_; }

 private:
  std::vector<Problem> problems_;
};

// A wrong word on the command line. Exit code 2.
class UsageError : public Error {
 public:
  explicit UsageError(Message message);
};

class DataError : public Error {
 public:
  explicit DataError(Message message);
};

// Thrown for a file, or a part of a file, that is intact but of a kind that Millrace does not read: another dtype, a pickle of
// other classes, an archive of code. It is reported like any other DataError, but `inspect` does not call the file damaged.
class UnreadKind : public DataError {
 public:
  using DataError::DataError;
};

class DeviceError : public Error {
 public:
  explicit DeviceError(Message message);
};

class DistributedError : public Error {
 public:
  explicit DistributedError(Message message);
};

class SnapshotError : public Error {
 public:
  explicit SnapshotError(Message message);
};

class TrainingDiverged : public Error {
 public:
  explicit TrainingDiverged(Message message);
};

// Thrown when a stage after the loader can't use a sample. `row` is the sample's row in the batch or, if `group` is not empty, in
// that group. The catcher adds the name of the sample.
class RowError : public DataError {
 public:
  RowError(Message message, std::int64_t row, std::string group = "");
  [[nodiscard]] std::int64_t row() const noexcept { return row_; }
  [[nodiscard]] const std::string& group() const noexcept { return group_; }

 private:
  std::int64_t row_;
  std::string group_;
};

// A mistake in the code of a recipe: in what it returned, or in how it called a function meant for recipes. The recipe's caller
// adds the name of the callback and the batch.
class RecipeError : public Error {
 public:
  explicit RecipeError(Message message);
};

// A mistake in Millrace itself, never reachable by user input; thrown by MR_CHECK.
class InternalError : public Error {
 public:
  explicit InternalError(Message message);
};

namespace detail {
[[noreturn]] void check_failed(const char* condition, const char* file, int line, const std::string& text);
}

}  // namespace millrace

// Checks an invariant of Millrace. Stays on in release builds; `text` is any expression convertible to std::string.
#define MR_CHECK(condition, text) \
  (static_cast<bool>(condition) ? static_cast<void>(0) : ::millrace::detail::check_failed(#condition, __FILE__, __LINE__, text))
