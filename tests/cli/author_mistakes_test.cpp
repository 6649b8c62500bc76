// Mistakes that a person makes who comes from another framework, planted in the recipe of mistakes/waves.cpp, and the table of a
// review that found 39 of them. Each is told at its place, and what its message advises ends it: the twin "NAME_mended".
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <utility>

#include "process.h"

namespace millrace::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct Answer {
  int exit_code = 0;
  std::string text;
  std::string doctor;  // of the run's folder afterwards
};

Answer answer_to(const std::string& mistake, std::vector<std::string> more = {}) {
  const Scratch scratch;
  std::vector<std::string> words = {MISTAKES_PROGRAM,        "train", "waves", "--run", "r", "--plant.mistake=" + mistake,
                                    "--precision.dtype=fp32"};
  words.insert(words.end(), more.begin(), more.end());
  const Result result = run(words, {.folder = scratch.path()});
  Answer answer{result.exit_code, result.out + result.err, ""};
  if (answer.exit_code > 2) answer.doctor = run({MISTAKES_PROGRAM, "doctor", "r"}, {.folder = scratch.path()}).out;
  return answer;
}

enum class When : std::uint8_t {
  refused,  // before the first step
  warned,   // before the first step, and the run goes on
  saved     // with the first snapshot
};

struct Planted {
  std::string name;
  std::vector<std::string> says;  // what, where, next
  When when = When::refused;
  int exit_code = 1;
  bool has_twin = false;  // what the message advises is more than to leave the mistake out
};

void PrintTo(const Planted& row, std::ostream* out) { *out << row.name; }

const std::string kInLoss = "recipe waves failed in loss(): ", kRefused = kInLoss + "LibTorch refused an operation: ";
const std::string kPlace = "objective \"main\", training batch 0 of epoch 0, step 1", kFields = "wave f32 [8,1,16]";
const std::string kTraining = "training batch 0 of epoch 0", kValidation = "validation batch 0";

// LibTorch's refusals.
std::vector<Planted> refusals() {
  return {
      {"tensor_of_cuda",
       {kRefused + "Could not run 'aten::empty.memory_format' with arguments from the 'CUDA' backend.\n", kPlace,
        "make each tensor where the batch is", "batch[\"x\"].options()"},
       When::refused,
       1,
       true},
      {"view_of_a_transposed",
       {kRefused + "view size is not compatible", kPlace, "write reshape() instead of view()"},
       When::refused,
       1,
       true},
      {"batch_axis_is_lost",
       {kRefused + "running_mean should contain 16 elements not 4", kPlace, kFields,
        "a batch axis that is lost (batch[\"x\"][0]"}},
      {"channel_axis_is_lost", {kRefused + "Given groups=1", kPlace, "channels are dimension 1 of [rows,channels,...]"}},
      {"double_into_a_float_net",
       {kRefused + "Input type (double) and bias type (float)", kPlace, "batch[\"x\"].to(at::kFloat)"},
       When::refused,
       1,
       true},
      {"holder_is_empty",
       {kRefused + "Accessing empty ModuleHolder", kPlace, "the layer was never constructed: layer = register_module("}},
  };
}

// What a loss takes and gives.
std::vector<Planted> losses() {
  return {
      {"logits_are_transposed", {"logits [2,8] need labels of shape [2], the labels have shape [8]", kPlace, kFields}},
      {"smoothing_of_soft_labels",
       {"the labels f32[8,2] are a number for each class", "i64[8]", kPlace, "labels.argmax(-1)"},
       When::refused,
       1,
       true},
      {"class_weights_of_wrong_length",
       {"3 class weights were given, but the logits have 2 classes", "nn::CrossEntropy", "one weight for each"},
       When::refused,
       2},
      {"softmax_before_the_loss", {"the output \"logits\" holds probabilities", "the values before a softmax"}, When::warned, 0},
      {"loss_changes_its_batch",
       {kInLoss + "field \"wave\" of the batch was changed in place", kPlace, "change fields for good in prepare()"},
       When::refused,
       1,
       true},
      {"mask_is_all_zero_in_validation",
       {"objective \"main\" counts no values in " + kValidation, "look at masks"},
       When::warned,
       0},
      {"outputs_are_missing",
       {"recipe waves failed in measure(): ", kValidation, "outputs: no fields", "the loss gives no outputs",
        ".outputs = {{\"logits\", logits}}"}},
  };
}

// What moves the model.
std::vector<Planted> parameters() {
  return {
      {"groups_that_overlap",
       {"parameter \"head.weight\" is updated twice by objective \"main\"", "Recipe::objectives()",
        "leave it in one ParameterGroup"}},
      {"parameters_in_no_group",
       {"4 parameters are in no objective and will not learn: ", "convolution.weight", "missing in Objective::parameters",
        "set_requires_grad(false)"},
       When::warned,
       0},
  };
}

// Evaluation, metrics, state.
std::vector<Planted> evaluation() {
  return {
      {"statistics_in_evaluation",
       {"output \"logits\" of objective \"main\": a row depends on the other rows of its batch in "
        "evaluation mode",
        "statistics of the batch"},
       When::warned,
       0},
      {"dropout_in_evaluation", {"draws random numbers in evaluation mode", "is_training()"}, When::warned, 0, true},
      {"metric_never_reset",
       {"metric \"own_accuracy\" has another value when " + kValidation + " is measured again", "reset in begin_validation()"},
       When::warned,
       0},
      {"validation_is_the_training",
       {"the validation has the 32 samples of the training", "Does data() look at the split?"},
       When::warned,
       0},
      {"state_is_never_loaded",
       {"load_state() does not restore what state() gave to the snapshot of step 4: tensor \"centre\"", "Recipe::load_state()",
        "take each tensor"},
       When::saved,
       0},
  };
}

// Randomness without a key.
std::vector<Planted> randomness() {
  return {
      {"source_draws_by_itself",
       {"field \"wave\" of sample ", " differs when " + kTraining + " is read again", "from its argument `random`"},
       When::warned,
       0,
       true},
      {"prepare_draws_by_itself",
       {"field \"wave\" of sample ", " differs when " + kTraining + " is prepared again", "nn::normal_rows"},
       When::warned,
       0,
       true},
  };
}

// The code of a source.
std::vector<Planted> sources() {
  return {
      {"source_counts_too_far",
       {"sample 31 can't be read: the code of its source failed: vector::_M_range_check", "batch ",
        "look in read() of the source for an index"}},
  };
}

std::vector<Planted> all_planted() {
  std::vector<Planted> rows;
  for (const auto& some : {refusals(), losses(), parameters(), evaluation(), randomness(), sources()})
    rows.insert(rows.end(), some.begin(), some.end());
  return rows;
}

class AuthorMistakes : public testing::TestWithParam<Planted> {};

TEST_P(AuthorMistakes, AreToldAndMended) {
  const Planted& row = GetParam();
  const std::vector<std::string> alone =
      row.when == When::warned ? std::vector<std::string>{"--rehearse"} : std::vector<std::string>();
  const Answer answer = answer_to(row.name, alone);
  SCOPED_TRACE(answer.text);
  EXPECT_EQ(answer.exit_code, row.exit_code);
  for (const std::string& words : row.says) EXPECT_THAT(answer.text, HasSubstr(words));
  EXPECT_THAT(answer.text, Not(HasSubstr("istake in Millrace")));
  EXPECT_EQ(answer.text.find("\nstep 1/") != std::string::npos, row.when == When::saved);
  if (!row.has_twin) return;
  const Answer mended = answer_to(row.name + "_mended", {"--rehearse"});
  EXPECT_EQ(mended.exit_code, 0) << mended.text;
  EXPECT_THAT(mended.text, Not(HasSubstr("warning")));
}

INSTANTIATE_TEST_SUITE_P(Table, AuthorMistakes, testing::ValuesIn(all_planted()), [](const auto& row) { return row.param.name; });

// Of which the twin is the recipe without a mistake.
TEST(AuthorMistakes, ARecipeWithoutOneIsLeftInPeace) {
  for (const char* name : {"", "loss_value_is_read", "strided_views_into_ours", "frozen_in_a_group", "batches_are_kept_mended",
                           "evaluation_mode_for_ever"}) {
    const Answer answer = answer_to(name);
    EXPECT_EQ(answer.exit_code, 0) << answer.text;
    EXPECT_THAT(answer.text, Not(HasSubstr("warning"))) << name;
  }
  const Answer average = answer_to("", {"--optim.ema_decay=0.9"});  // of a model whose norm counts batches in an integer
  EXPECT_EQ(average.exit_code, 0) << average.text;
  EXPECT_THAT(average.text, Not(HasSubstr("warning")));
}

TEST(AuthorMistakes, AMetricThatIsNotANumberIsNoError) {
  const Answer answer = answer_to("metric_is_not_a_number");
  EXPECT_EQ(answer.exit_code, 0) << answer.text;
  EXPECT_THAT(answer.text, HasSubstr("sure is not a number"));
}

TEST(AuthorMistakes, NaNOfSomeSamplesIsAFindingThatNamesThem) {
  const Answer answer = answer_to("nan_in_a_sample");
  EXPECT_EQ(answer.exit_code, 0) << answer.text;
  EXPECT_THAT(answer.text, AllOf(HasSubstr("not_finite: "), HasSubstr("nor is the input: sample 5"), HasSubstr("field wave"),
                                 HasSubstr("repair or remove"), Not(HasSubstr("clip_norm"))));
}

TEST(AuthorMistakes, NaNThatPrepareMakesNamesTheFieldAndTheSample) {
  const Answer answer = answer_to("prepare_divides_a_silent_sample");
  EXPECT_EQ(answer.exit_code, 0) << answer.text;
  EXPECT_THAT(
      answer.text,
      AllOf(HasSubstr(
                "were skipped because prepare() makes values that are not finite from their input: sample 5, field wave after "
                "prepare(): 16 of 16 values are not finite, the first, nan, at [0,0]"),
            HasSubstr("not_finite: "),
            HasSubstr("the input is finite, but prepare() makes values from it that are not: sample 5"),
            HasSubstr("in Recipe::prepare(), look for zeros"), Not(HasSubstr("clip_norm"))));
  const Answer all = answer_to("prepare_divides_by_itself", {"--train.epochs=4"});
  EXPECT_EQ(all.exit_code, 1) << all.text;
  EXPECT_THAT(all.text, AllOf(HasSubstr("and prepare() made values that are not finite from a finite input: sample "),
                              HasSubstr("field wave after prepare(): 16 of 16"), HasSubstr("repair Recipe::prepare(), then ")));
  const Answer mended = answer_to("prepare_divides_a_silent_sample_mended");
  EXPECT_EQ(mended.exit_code, 0) << mended.text;
  EXPECT_THAT(mended.text, AllOf(Not(HasSubstr("not finite")), Not(HasSubstr("skipped"))));
}

TEST(AuthorMistakes, AParameterThawedLaterIsNamedAtTheNextLogLine) {
  const Answer answer = answer_to("thawed_later");
  EXPECT_EQ(answer.exit_code, 1) << answer.text;
  EXPECT_THAT(answer.text,
              AllOf(HasSubstr("\nstep 2/"), HasSubstr("RecipeError"),
                    HasSubstr("parameter \"convolution.weight\" was frozen when the run began and requires a gradient now, but "
                              "no optimiser updates it"),
                    HasSubstr("set_requires_grad(true) in the recipe, before the log line of step 3"), HasSubstr("detach()")));
  const Answer mended = answer_to("thawed_later_mended");
  EXPECT_EQ(mended.exit_code, 0) << mended.text;
  EXPECT_THAT(mended.text, HasSubstr("done at step 8"));
}

TEST(AuthorMistakes, ALongFitObeysASignalAndLeavesNoFile) {
  const Scratch scratch;
  const Result result =
      run({MISTAKES_PROGRAM, "train", "waves", "--run", "r", "--plant.mistake=signal_in_a_long_fit"}, {.folder = scratch.path()});
  EXPECT_EQ(result.exit_code, 128 + 15);
  EXPECT_THAT(result.out + result.err, HasSubstr("stopped by SIGTERM before the first step; the same command starts again"));
  EXPECT_FALSE(fs::exists(scratch.path() / "fit.part")) << "its destructor did not run";
}

// Trials make it before the rehearsal begins.
TEST(AuthorMistakes, ALayerMadeInAForwardPassIsToldWithAndWithoutTrials) {
  EXPECT_THAT(answer_to("layer_made_in_forward").text,
              AllOf(HasSubstr("2 parameters are in no objective and will not learn: late.weight, late.bias"),
                    HasSubstr("made in a forward pass instead of the constructor")));
  EXPECT_THAT(
      answer_to("layer_made_in_forward", {"--rehearse"}).text,
      AllOf(HasSubstr("depends on tensors that model() does not hold: f32 [4], f32 [4,4]"), HasSubstr("in the constructor of")));
}

TEST(AuthorMistakes, KeptBatchesAreNamed) {
  EXPECT_THAT(answer_to("batches_are_kept").text, AllOf(HasSubstr("batches are kept at once"), HasSubstr("clone the tensors")));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// "mistakes/waves.cpp:57", the line that holds `code`.
std::string line_of(const std::string& code) {
  const std::string source = read_text(WAVES_SOURCE);
  const auto here = source.begin() + static_cast<std::ptrdiff_t>(source.find(code));
  return "mistakes/waves.cpp:" + std::to_string(std::count(source.begin(), here, '\n') + 1);
}

struct Crash {
  std::string name;
  std::vector<std::string> more;
  int signal;
  std::vector<std::string> says;
  std::string died;
};

TEST(AuthorMistakes, ACrashNamesThreadCallSampleAndLine) {
  const std::string fault = "crash: a segmentation fault (SIGSEGV) in ", read = "Waves, sample 31";
  const std::string looked = "next     look there for an index out of range, a null pointer, or a layer that was never made";
  const std::vector<Crash> crashes = {
      {"source_reads_nowhere",
       {},
       11,
       {fault + "read() of mistakes::", read, "the main thread", "mistakes+0x", looked,
        line_of("mistake_ == \"source_reads_nowhere\" &&") + "\n"},
       "died before its first step of a segmentation fault (SIGSEGV) in read() of mistakes::"},
      {"source_reads_nowhere_late",
       {"--data.workers=1", "--data.shuffle=false"},
       11,
       {read, "thread mr-reader-0; the run was in ", line_of("mistake_ == \"source_reads_nowhere_late\" &&") + "\n"},
       "of a segmentation fault (SIGSEGV) in read() of mistakes::"},
      {"source_calls_itself",
       {"--data.workers=1", "--data.shuffle=false"},
       11,
       {"crash: a stack overflow (SIGSEGV) in read() of mistakes::", read, "thread mr-reader-0; the run was in ",
        "next     look there for a function that calls itself without end, or put large arrays into a std::vector",
        "mistakes/waves.cpp:"},
       "of a stack overflow (SIGSEGV) in read() of mistakes::"},
      {"loss_reads_nowhere",
       {},
       11,
       {fault + "loss() of recipe waves, objective 'main', training batch 2 of epoch 0, step 3\n",
        "the main thread, in step 3, forward of main", line_of("plants(\"loss_reads_nowhere\")")},
       "died after step 2 of a segmentation fault (SIGSEGV) in loss() of recipe waves"},
      {"holder_is_called_empty",
       {},
       11,
       {fault + "loss() of recipe waves", line_of("\"holder_is_called_empty\") return"), looked},
       "died before its first step of a segmentation fault"},
      {"loss_aborts",
       {},
       6,
       {"crash: an abort (SIGABRT) in loss() of recipe waves", line_of("plants(\"loss_aborts\")")},
       "died before its first step of an abort (SIGABRT) in loss() of recipe waves"},
  };
  for (const Crash& crash : crashes) {
    const Answer answer = answer_to(crash.name, crash.more);
    SCOPED_TRACE(crash.name + "\n" + answer.text + answer.doctor);
    EXPECT_EQ(answer.exit_code, 128 + crash.signal);
    for (std::string words : crash.says) {
      std::ranges::replace(words, '\'', '"');
      EXPECT_THAT(answer.text, HasSubstr(words));
    }
    EXPECT_THAT(answer.doctor, AllOf(HasSubstr(crash.died), HasSubstr("waves.cpp:"), HasSubstr("next: ")));
  }
}

// What a crash left in a folder is no reason to refuse it.
TEST(AuthorMistakes, ARunGoesOnInTheFolderOfACrash) {
  const Scratch scratch;
  const auto begin = [&](const std::string& mistake) {
    return run({MISTAKES_PROGRAM, "train", "waves", "--run", "r", "--plant.mistake=" + mistake}, {.folder = scratch.path()});
  };
  EXPECT_EQ(begin("source_reads_nowhere").exit_code, 128 + 11);
  EXPECT_EQ(begin("loss_quits").exit_code, 128 + 3);
  EXPECT_EQ(begin("").exit_code, 0);
  const Result doctor = run({MISTAKES_PROGRAM, "doctor", "r"}, {.folder = scratch.path()});
  EXPECT_THAT(doctor.out, AllOf(HasSubstr("finished at step 8"), Not(HasSubstr("segmentation"))));
}
#endif

TEST(AuthorMistakes, AConfigThatKeepsTheWorstIsRefused) {
  const Answer wrong = answer_to("", {"--snapshot.best_metric=accuracy"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.text, AllOf(HasSubstr("the best accuracy is the highest value, but the config keeps the lowest as the best"),
                                HasSubstr("--snapshot.best_is=highest")));
  const Answer mended = answer_to("", {"--snapshot.best_metric=accuracy", "--snapshot.best_is=highest"});
  EXPECT_EQ(mended.exit_code, 0) << mended.text;
}

constexpr const char* kUnseen = "";                                             // by anybody
constexpr const char* kOfFileSource = "FileSource.AFileUnlikeTheFirstIsNamed";  // in data/sources/file_source_test.cpp

// The review's table, row by row, and the test that holds it.
constexpr std::array<std::pair<const char*, const char*>, 39> kReview = {{
    {"field typo", "Table/Mistakes.AreTold/field_typo"},
    {"logits transposed", "Table/AuthorMistakes.AreToldAndMended/logits_are_transposed"},
    {"batch axis averaged away", "SilentFaults.ALossThatDoesNotAddUpIsRefused"},
    {"mean_squared_error of [32,1] and [32]", "Table/Mistakes.AreTold/target_of_another_shape"},
    {"own loss broadcasts", "SilentFaults.ALossThatDoesNotAddUpIsRefused"},
    {"own loss a mean with count 1", "SilentFaults.ALossThatDoesNotAddUpIsRefused"},
    {"loss is no scalar", "Table/Mistakes.AreTold/sum_is_no_scalar"},
    {"layer not registered in model()", "SilentFaults.ALayerThatTheModelDoesNotHoldIsRefused"},
    {"parameters never used", "Table/Mistakes.AreTold/unused_layer"},
    {"label 7 of 5 classes", "Table/Mistakes.AreTold/label_out_of_range"},
    {"label 7 of 5 classes, in a file", "Table/Mistakes.AreTold/label_out_of_range_in_a_file"},
    {"one clip of NaN", "Table/Mistakes.AreTold/not_a_number_in_the_data"},
    {"NaN in some crops", "AuthorMistakes.NaNOfSomeSamplesIsAFindingThatNamesThem"},
    {"tensor of CUDA on a CPU", "Table/AuthorMistakes.AreToldAndMended/tensor_of_cuda"},
    {"item() in the loss, each step: harmless on a CPU", "AuthorMistakes.ARecipeWithoutOneIsLeftInPeace"},
    {"item(), then at::full", "Table/Mistakes.AreTold/no_gradient_item"},
    {"batch[\"wave\"][0]", "Table/AuthorMistakes.AreToldAndMended/batch_axis_is_lost"},
    {"view of a transposed", "Table/AuthorMistakes.AreToldAndMended/view_of_a_transposed"},
    {"strided view into our layer_norm: right", "AuthorMistakes.ARecipeWithoutOneIsLeftInPeace"},
    {"strided view into our gelu: right", "AuthorMistakes.ARecipeWithoutOneIsLeftInPeace"},
    {"strided view into our causal_attention: right", "AuthorMistakes.ARecipeWithoutOneIsLeftInPeace"},
    {"data_ptr of a strided tensor", kUnseen},
    {"double into a float net", "Table/AuthorMistakes.AreToldAndMended/double_into_a_float_net"},
    {"int32 labels", "Table/Mistakes.AreTold/labels_i32"},
    {"outputs without logits", "Table/AuthorMistakes.AreToldAndMended/outputs_are_missing"},
    {"outputs of another name", "Table/Mistakes.AreTold/missing_output"},
    {"empty ModuleHolder", "Table/AuthorMistakes.AreToldAndMended/holder_is_empty"},
    {"in-place operation", "Table/Mistakes.AreTold/in_place_on_a_saved_tensor"},
    {"batches kept in a vector", "AuthorMistakes.KeptBatchesAreNamed"},
    {"source writes f64 into f32", "Table/Mistakes.AreTold/generate_writes_another_type"},
    {"source writes an unknown field", "Table/Mistakes.AreTold/generate_writes_a_wrong_field"},
    {"source throws std::out_of_range", "Table/AuthorMistakes.AreToldAndMended/source_counts_too_far"},
    {"source segfaults", "AuthorMistakes.ACrashNamesThreadCallSampleAndLine"},
    {"predict gives fewer rows", "Table/Mistakes.AreTold/predict_gives_fewer_rows"},
    {"predict gives another name", "Table/Mistakes.AreTold/predict_gives_another_name"},
    {"measure throws", "Table/Mistakes.AreTold/measure_throws"},
    {"best_metric that nobody gives", "Table/Mistakes.AreTold/best_metric_typo"},
    {"a clip of another length", kOfFileSource},
    {"a cut .npy", kOfFileSource},
}};

TEST(AuthorMistakes, EachRowOfTheReviewHasItsTest) {
  std::vector<std::string> tests;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int k = 0; k < suite.total_test_count(); ++k)
      tests.push_back(std::string(suite.name()) + "." + suite.GetTestInfo(k)->name());
  }
  for (const auto& [mistake, test] : kReview) {
    if (test == kUnseen || test == kOfFileSource) continue;
    EXPECT_THAT(tests, testing::Contains(test)) << mistake;
  }
}

}  // namespace
}  // namespace millrace::test
