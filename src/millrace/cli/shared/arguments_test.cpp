#include "millrace/cli/shared/arguments.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <new>

#include "millrace/base/fs.h"
#include "millrace/cli/shared/failure.h"
#include "millrace/cli/shared/text.h"

namespace millrace::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Arguments make(std::vector<std::string> words) { return Arguments(words); }

std::string text_of(const std::function<void()>& call) {
  try {
    call();
  } catch (...) {
    const Failure failure = describe(std::current_exception());
    return std::to_string(failure.exit_code) + " " + failure.text;
  }
  return "nothing thrown";
}

TEST(Arguments, TakesValuesInBothForms) {
  Arguments a = make({"x", "--config=a.json", "y", "-c", "b.json", "--config-file", "c.json", "--other=1"});
  EXPECT_THAT(a.values({"config", "config_file", "c"}), ElementsAre("a.json", "b.json", "c.json"));
  EXPECT_THAT(a.words(), ElementsAre("x", "y", "--other=1"));
}

TEST(Arguments, HyphenAndUnderscoreAreAlike) {
  EXPECT_EQ(make({"--make_data", "x"}).value("make-data"), "x");
  EXPECT_EQ(make({"--make-data=x=y"}).value("make_data"), "x=y");
  EXPECT_TRUE(make({"--dry_run"}).flag("dry-run"));
}

TEST(Arguments, LastValueCounts) {
  EXPECT_EQ(make({"--seed=1", "--seed", "2"}).value("seed"), "2");
  EXPECT_EQ(make({"x"}).value("seed"), std::nullopt);
}

TEST(Arguments, MissingValueIsAProblem) {
  for (const auto& words : {std::vector<std::string>{"--out"}, std::vector<std::string>{"--out", "--json"}}) {
    Arguments a = make(words);
    EXPECT_EQ(a.value("out"), std::nullopt);
    ASSERT_EQ(a.problems().size(), 1U);
    EXPECT_EQ(a.problems()[0].what, "--out needs a value");
    EXPECT_EQ(a.problems()[0].next, "write --out=VALUE");
  }
}

TEST(Arguments, FlagForms) {
  EXPECT_TRUE(make({"--json"}).flag("json"));
  EXPECT_FALSE(make({"--no-json"}).flag("json"));
  EXPECT_FALSE(make({"--json=false"}).flag("json"));
  EXPECT_FALSE(make({"--json", "--no_json"}).flag("json"));
  Arguments a = make({"--json", "true", "path"});
  EXPECT_TRUE(a.flag("json"));
  EXPECT_THAT(a.words(), ElementsAre("path"));
  Arguments b = make({"--json", "path"});
  EXPECT_TRUE(b.flag("json"));
  EXPECT_THAT(b.words(), ElementsAre("path"));
  Arguments c = make({"--json=maybe"});
  c.flag("json");
  ASSERT_EQ(c.problems().size(), 1U);
  EXPECT_THAT(c.problems()[0].what, HasSubstr("\"maybe\", which is neither true nor false"));
}

TEST(Arguments, Integer) {
  EXPECT_EQ(make({"--steps=12"}).integer("steps", 9, 1), 12);
  EXPECT_EQ(make({}).integer("steps", 9, 1), 9);
  for (const char* wrong : {"--steps=0", "--steps=2x", "--steps=", "--steps=1.5", "--steps=99999999999999999999"}) {
    Arguments a = make({wrong});
    EXPECT_EQ(a.integer("steps", 9, 1), 9) << wrong;
    ASSERT_EQ(a.problems().size(), 1U) << wrong;
    EXPECT_THAT(a.problems()[0].what, HasSubstr("not a whole number from 1")) << wrong;
  }
}

TEST(Arguments, PositionalSkipsOptions) {
  Arguments a = make({"--x", "-y", "path", "more"});
  EXPECT_EQ(a.positional(), "path");
  EXPECT_EQ(a.positional(), "more");
  EXPECT_EQ(a.positional(), std::nullopt);
}

TEST(Arguments, FinishNamesWhatNobodyTook) {
  Arguments a = make({"--switchs"});
  a.flag("switches");
  EXPECT_EQ(text_of([&] { a.finish("list"); }),
            "2 UsageError  there is no option --switchs\n  where    millrace list\n"
            "  next     did you mean --switches? millrace list --help lists the options");
  Arguments b = make({"word"});
  EXPECT_THAT(text_of([&] { b.finish("list"); }), HasSubstr("unexpected word \"word\""));
  Arguments c = make({"one", "--two"});
  const std::string both = text_of([&] { c.finish("list"); });
  EXPECT_THAT(both, HasSubstr("\"one\""));
  EXPECT_THAT(both, HasSubstr("--two"));
  make({}).finish("list");
}

class TakeRecipe : public testing::Test {
 protected:
  std::vector<Entry> recipes_ = std::vector<Entry>(2);
  void SetUp() override {
    recipes_[0].name = "language_model";
    recipes_[1].name = "image_pairs";
  }
};

TEST_F(TakeRecipe, FirstWordOrTheFirstThatIsOne) {
  Arguments a = make({"language-model", "--x", "image_pairs"});
  EXPECT_EQ(take_recipe(a, recipes_, "train").name, "language_model");
  EXPECT_THAT(a.words(), ElementsAre("--x", "image_pairs"));
  Arguments b = make({"--optim.learning_rate", "1e-3", "image_pairs"});
  EXPECT_EQ(take_recipe(b, recipes_, "train").name, "image_pairs");
}

TEST_F(TakeRecipe, NamesTheNearest) {
  Arguments a = make({"langage_model"});
  EXPECT_EQ(text_of([&] { take_recipe(a, recipes_, "train"); }),
            "2 UsageError  there is no recipe \"langage_model\"\n  where    millrace train\n"
            "  next     did you mean \"language_model\"? recipes: language_model, image_pairs");
  Arguments b = make({"--json"});
  EXPECT_THAT(text_of([&] { take_recipe(b, recipes_, "train"); }), HasSubstr("millrace train needs the name of a recipe"));
}

TEST(Table, AlignsNumbersToTheRight) {
  EXPECT_EQ(table({{"run", "step"}, {"a", "7"}, {"longer", "1,200"}}), "run      step\na           7\nlonger  1,200\n");
  EXPECT_EQ(table({{"é", "x"}, {"ab", "y"}}), "é   x\nab  y\n");
  EXPECT_THAT(table({}), IsEmpty());
}

TEST(Failure, KeepsTheExitCodeOfOurErrors) {
  EXPECT_THAT(text_of([] { throw ConfigError(Message{"a", "b", "c"}); }), testing::StartsWith("2 ConfigError  a\n"));
  EXPECT_THAT(text_of([] { throw DataError(Message{"a", "b", "c"}); }), testing::StartsWith("1 DataError  a\n"));
}

TEST(Failure, TurnsForeignExceptionsIntoTheThreeParts) {
  EXPECT_THAT(text_of([] { throw std::bad_alloc(); }), HasSubstr("1 DeviceError  out of memory\n  where    peak resident "));
  EXPECT_THAT(text_of([] { throw std::runtime_error("line one\nline two"); }),
              testing::AllOf(HasSubstr("1 InternalError  line one\n"), testing::Not(HasSubstr("line two"))));
  EXPECT_THAT(text_of([] { throw FsError("write", "a/b", ENOSPC); }), HasSubstr("1 FileError  "));
  EXPECT_THAT(text_of([] { std::filesystem::create_directory("/dev/null/x"); }), HasSubstr("1 FileError  "));
  EXPECT_THAT(text_of([] { throw 3; }), HasSubstr("unknown type"));
}

TEST(Failure, ShowsLibTorchsMessageWithoutItsBacktrace) {
  const std::string text = text_of([] { TORCH_CHECK(false, "mat1 and mat2 do not fit"); });
  EXPECT_THAT(text, HasSubstr("1 InternalError  LibTorch refused an operation: mat1 and mat2 do not fit\n"));
  EXPECT_THAT(text, testing::Not(HasSubstr("Exception raised")));
  EXPECT_THAT(text_of([] { TORCH_CHECK(false, "DefaultCPUAllocator: can't allocate memory: you tried"); }),
              HasSubstr("1 DeviceError  out of memory: DefaultCPUAllocator"));
}

}  // namespace
}  // namespace millrace::cli
