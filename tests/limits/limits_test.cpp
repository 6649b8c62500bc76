// Limits of the process (ulimit -v, -u, -n, -f), each tried from far too little to plenty: a run either succeeds or ends with a
// sentence that names the limit; it never dies of a signal, and an earlier run in its folder can be resumed afterwards.
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "../cli/process.h"
#include "millrace/base/json.h"

namespace millrace::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct Limit {
  const char* option;
  int resource;
  std::uint64_t unit, first, last;
};

constexpr Limit kAddressSpace{"ulimit -v", RLIMIT_AS, 1U << 20U, 300, 2000};
constexpr Limit kThreads{"ulimit -u", RLIMIT_NPROC, 1, 0, 20};
constexpr Limit kFiles{"ulimit -n", RLIMIT_NOFILE, 1, 5, 160};
constexpr Limit kFileSize{"ulimit -f", RLIMIT_FSIZE, 1U << 10U, 8, 1200};
constexpr uid_t kNobody = 65534;

std::uint64_t steps_asked_for() {
  const char* const given = std::getenv("MILLRACE_LIMITS");
  return given == nullptr ? 3 : std::max<std::uint64_t>(2, std::strtoull(given, nullptr, 10));
}

void become_nobody() {
  if (::setgroups(0, nullptr) != 0 || ::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) ::_exit(126);
}

void give_to_nobody(const fs::path& folder) {
  ASSERT_EQ(::chown(folder.c_str(), kNobody, kNobody), 0);
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    ASSERT_EQ(::chown(entry.path().c_str(), kNobody, kNobody), 0);
  }
}

// By recipe: sample data, a run of two steps, and its state after a third, all made without limits.
class Limits : public testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() {
    scratch_ = std::make_unique<Scratch>();
    fs::permissions(scratch_->path(), fs::perms::all);
  }
  static void TearDownTestSuite() {
    scratch_.reset();
    whole_.clear();
  }

  void SetUp() override {
    home_ = scratch_->path() / GetParam();
    if (whole_.contains(GetParam())) return;
    fs::create_directories(home_ / "cache");
    const Result made = run({MILLRACE_PROGRAM, "make-data", GetParam(), "--preset", "smoke", "--out", (home_ / "data").string()});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    ASSERT_EQ(train("begun", 2).exit_code, 0);
    take_copy("whole");
    ASSERT_EQ(train("whole", 3).exit_code, 0);
    whole_[GetParam()] = state_of("whole");
    if (::geteuid() == 0) give_to_nobody(home_ / "cache");
  }

  [[nodiscard]] Result train(const std::string& name, int most_steps, std::function<void()> before = {}) const {
    std::vector<std::string> words = {MILLRACE_PROGRAM, "train", GetParam(), "--preset", "smoke"};
    // A resumed run tries nothing, so the run it goes on from need not either.
    for (const char* word : {"--precision.dtype=fp32", "--device.threads=2", "--device.kernels=ours", "--off=rehearsal"})
      words.emplace_back(word);
    if (GetParam() != std::string("language_model")) words.emplace_back("--device.layout=contiguous");
    for (const std::string& word : {std::string("--data"), (home_ / "data").string(), std::string("--run"),
                                    (home_ / name).string(), std::string("--max_steps"), std::to_string(most_steps)})
      words.push_back(word);
    return run(words, {.folder = home_,
                       .environment = {{"XDG_CACHE_HOME", (home_ / "cache").string()}, {"OMP_WAIT_POLICY", "passive"}},
                       .input = {},
                       .out_file = {},
                       .before = std::move(before)});
  }

  void take_copy(const std::string& name) const {
    fs::remove_all(home_ / name);
    fs::copy(home_ / "begun", home_ / name, fs::copy_options::recursive);
  }

  [[nodiscard]] std::string state_of(const std::string& name) const {
    return Json::parse(read_text(home_ / name / "summary.json")).value("state_sha256", "none");
  }

  // The run takes its third step below the limit; when it can't, it does so afterwards without.
  void try_limit(const Limit& limit, std::uint64_t value, bool as_nobody) const {
    SCOPED_TRACE(std::string(limit.option) + " " + std::to_string(value));
    take_copy("tried");
    if (as_nobody) give_to_nobody(home_ / "tried");
    const Result result = train("tried", 3, [&] {
      const rlimit no_core{0, 0};
      const rlimit most{value * limit.unit, value * limit.unit};
      ::setrlimit(RLIMIT_CORE, &no_core);
      if (as_nobody) become_nobody();
      if (::setrlimit(static_cast<__rlimit_resource_t>(limit.resource), &most) != 0) ::_exit(126);
    });
    std::cout << GetParam() << "  " << limit.option << " " << value << "  exit " << result.exit_code << "  "
              << result.err.substr(0, result.err.find('\n')) << std::endl;
    EXPECT_LE(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("InternalError")));
    if (result.exit_code == 0) return;
    EXPECT_THAT(result.err, AllOf(HasSubstr(limit.option), HasSubstr("\n  next ")));
    const Result later = train("tried", 3);
    ASSERT_EQ(later.exit_code, 0) << later.err;
    // A step that memory had cut was kept: its sums are those of parts, in other bits.
    if (result.err.find("is cut into") == std::string::npos) {
      EXPECT_EQ(state_of("tried"), whole_[GetParam()]);
    }
  }

  // Closer steps where it is tight.
  void walk(const Limit& limit, bool as_nobody = false) const {
    const std::uint64_t last = steps_asked_for() - 1;
    std::uint64_t before = ~std::uint64_t{0};
    for (std::uint64_t i = 0; i <= last; ++i) {
      const std::uint64_t value = limit.first + (limit.last - limit.first) * i * i / (last * last);
      if (value != before) try_limit(limit, value, as_nobody);
      before = value;
    }
  }

  fs::path home_;

 private:
  static std::unique_ptr<Scratch> scratch_;
  static std::map<std::string, std::string> whole_;
};

std::unique_ptr<Scratch> Limits::scratch_;
std::map<std::string, std::string> Limits::whole_;

TEST_P(Limits, OfAddressSpace) { walk(kAddressSpace); }

TEST_P(Limits, OfThreads) {
  const bool is_root = ::geteuid() == 0;  // without a limit on threads
  if (is_root && run({MILLRACE_PROGRAM, "--version"},
                     {.folder = {}, .environment = {}, .input = {}, .out_file = {}, .before = become_nobody})
                         .exit_code != 0) {
    GTEST_SKIP() << "no other user can run the program here";
  }
  walk(kThreads, is_root);
}

TEST_P(Limits, OfOpenFiles) { walk(kFiles); }

TEST_P(Limits, OfTheSizeOfAFile) { walk(kFileSize); }

INSTANTIATE_TEST_SUITE_P(Recipes, Limits, testing::Values("language_model", "cosmology", "neural_response", "image_pairs"),
                         [](const auto& recipe) { return std::string(recipe.param); });

}  // namespace
}  // namespace millrace::test
