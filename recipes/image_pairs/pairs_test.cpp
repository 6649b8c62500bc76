#include "recipes/image_pairs/pairs.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <fstream>
#include <set>

#include "millrace/base/error.h"
#include "tests/support/refusal.h"

namespace millrace::recipes::image_pairs {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class PairsTest : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((folder_.path() / name).parent_path());
    std::ofstream(folder_.path() / name) << text;
    return folder_.path() / name;
  }
  struct Folder {
    std::filesystem::path at = std::filesystem::temp_directory_path() / ("millrace-pairs-" + std::to_string(::getpid()));
    Folder() { std::filesystem::create_directories(at); }
    ~Folder() { std::filesystem::remove_all(at); }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    [[nodiscard]] const std::filesystem::path& path() const { return at; }
  };
  Folder folder_;
};

const std::string kHead = "img1,img2,score1,score2,label\n";

TEST_F(PairsTest, LabelsAreReadInOrderOfNames) {
  const auto file = write("labels.txt", "# scores\n\nb.png -5\n a photo.png\t2.5e1 \r\nc.png 0\n");
  const auto labels = read_labels(file);
  ASSERT_EQ(labels.size(), 3U);
  EXPECT_EQ(labels[0].name, "a photo.png");
  EXPECT_EQ(labels[0].score, 25);
  EXPECT_EQ(labels[1].name, "b.png");
}

TEST_F(PairsTest, LabelsOfOtherProgramsAreRead) {
  for (const char* text : {"\xEF\xBB\xBF"
                           "a b.png 1.5\nc.png -2\n",
                           "a b.png;1,5\r\nc.png;-2\r\n", "name,score\n\"a b.png\",1.5\nc.png,-2\n", "a b.png\t1,5\nc.png\t-2\n",
                           "a b.png, 1.5\nc.png, -2\n"}) {
    const auto labels = read_labels(write("labels.txt", text));
    ASSERT_EQ(labels.size(), 2U) << text;
    EXPECT_EQ(labels[0].name, "a b.png") << text;
    EXPECT_EQ(labels[0].score, 1.5) << text;
    EXPECT_EQ(labels[1].name, "c.png") << text;
    EXPECT_EQ(labels[1].score, -2) << text;
  }
  const auto refused = [&](const std::string& text) {
    return refusal<DataError>([&] { (void)read_labels(write("labels.txt", text)); });
  };
  for (const char* text : {"a.png 1,5\n", "a.png;1,500\n"})
    EXPECT_THAT(refused(text), HasSubstr("where a score is expected, which may mean two numbers: write it with a point")) << text;
  EXPECT_THAT(refused("0;a.png;1.5\n"), HasSubstr("has \"a.png;1.5\" where a score is expected"));
}

TEST_F(PairsTest, EveryBadLineOfLabelsIsNamed) {
  const auto file = write("labels.txt", "a.png\nb.png x\nc.png nan\nd.png 1\nd.png 2\n");
  EXPECT_THAT(refusal<DataError>([&] { (void)read_labels(file); }),
              AllOf(HasSubstr("line 1 has no score"), HasSubstr("line 2 has \"x\" where a score is expected"),
                    HasSubstr("line 3 has a score that is not finite"), HasSubstr("line 5 names \"d.png\" again, after line 4")));
  EXPECT_THAT(refusal<DataError>([&] { (void)read_labels(write("none.txt", "# nothing\n")); }), HasSubstr("there are no labels"));
  EXPECT_THAT(refusal<DataError>([&] { (void)read_labels(write("bytes.txt", "\xff 1\n")); }), HasSubstr("not UTF-8"));
}

TEST_F(PairsTest, WhatBelongsTogetherLiesOnOneSideOfAFold) {
  const auto file = write("labels.txt", "a 1\nb c 2\nd 3\ne 4\nf 5\ng 6\n");
  (void)write("groups.txt", "# who is on it\na\tx y\nd\tx y\n\nb c\tz\nnobody\tz\r\n");
  const auto labels = read_labels(file);
  EXPECT_EQ(labels[0].group, "x y");
  EXPECT_EQ(labels[1].group, "z");
  EXPECT_EQ(labels[3].group, "");
  for (const std::uint64_t seed : {1, 2, 3, 4}) {
    for (const auto& fold : deal_folds(labels, 2, seed))
      EXPECT_EQ(std::ranges::count(fold, 0), std::ranges::count(fold, 2)) << "a and d are one group";
  }
  (void)write("groups.txt", "a x\n");
  EXPECT_THAT(refusal<DataError>([&] { (void)read_labels(file); }), HasSubstr("line 1 has no tab between name and group"));
}

TEST_F(PairsTest, ThetaItselfIsSimilar) {
  EXPECT_EQ(answer_of(0.3, 0.1, 0.2), Answer::similar) << "0.3 - 0.1 is above 0.2 in binary";
  EXPECT_EQ(answer_of(0.1, 0.3, 0.2), Answer::similar);
  EXPECT_EQ(answer_of(0.300001, 0.1, 0.2), Answer::first);
  EXPECT_EQ(answer_of(-25, -5, 0.2), Answer::second);
}

// The numbers on the recipe's page: 5,500 images and five folds.
TEST_F(PairsTest, FoldsHaveThePublishedSizes) {
  constexpr std::int64_t kImages = 5500;
  std::vector<double> scores;
  for (std::int64_t i = 0; i < kImages; ++i) scores.push_back(1 + 4 * static_cast<double>(i % 997) / 997);
  const auto folds = deal_folds(std::vector<Labelled>(kImages), 5, 42);
  std::set<std::int64_t> seen;
  for (const auto& fold : folds) {
    EXPECT_EQ(fold.size(), 1100U);
    seen.insert(fold.begin(), fold.end());
  }
  EXPECT_EQ(seen.size(), 5500U);
  EXPECT_EQ(all_pairs(scores, folds[0], 0.2, 0, 42).size(), 604'450U);
  std::vector<std::int64_t> others;
  for (std::size_t k = 1; k < 5; ++k) others.insert(others.end(), folds[k].begin(), folds[k].end());
  const PairDraw draw{.per_class = 15'000, .theta = 0.2, .near_band = 0.15, .near_ratio = 0.5};
  const auto pairs = draw_pairs(scores, others, draw, 142);
  ASSERT_EQ(pairs.size(), 45'000U);
  const std::set<std::int64_t> held(folds[0].begin(), folds[0].end());
  std::array<int, 3> counts{};
  int near = 0;
  for (const Pair& pair : pairs) {
    ++counts.at(static_cast<std::size_t>(pair.label));
    EXPECT_NE(pair.first, pair.second);
    EXPECT_FALSE(held.contains(pair.first) || held.contains(pair.second));
    const double apart = std::abs(scores[static_cast<std::size_t>(pair.first)] - scores[static_cast<std::size_t>(pair.second)]);
    EXPECT_EQ(pair.label == Answer::similar, std::round(apart * 1e6) <= 200'000);
    near += pair.label == Answer::similar && apart <= 0.15 ? 1 : 0;
  }
  EXPECT_THAT(counts, ElementsAre(15'000, 15'000, 15'000));
  EXPECT_NEAR(near / 15'000.0, 0.857, 0.02) << "3/4 of the similar lie within the band anyhow; of half of the draws all do";
  EXPECT_EQ(draw_pairs(scores, others, draw, 142), pairs) << "the same seed";
  EXPECT_NE(draw_pairs(scores, others, draw, 143), pairs);
}

TEST_F(PairsTest, TooFewOfAnAnswerIsSaidWithTheCounts) {
  const std::vector<double> scores = {1, 2, 3, 4};
  const std::vector<std::int64_t> members = {0, 1, 2, 3};
  EXPECT_THAT(refusal<DataError>([&] { (void)draw_pairs(scores, members, {.per_class = 10, .theta = 0.2}, 1); }),
              AllOf(HasSubstr("10 are First, 10 Second and 0 Similar, but 10 of each are needed")));
}

TEST_F(PairsTest, APartOfThePairsIsAPartOfThem) {
  const std::vector<double> scores = {1, 2, 3, 4, 5, 6};
  const std::vector<std::int64_t> members = {5, 0, 3, 1};
  EXPECT_EQ(all_pairs(scores, members, 0, 0, 1).size(), 6U);
  EXPECT_EQ(all_pairs(scores, members, 0, 4, 1).size(), 4U);
  EXPECT_EQ(all_pairs(scores, members, 0, 4, 1), all_pairs(scores, members, 0, 4, 1));
  EXPECT_EQ(all_pairs(scores, members, 0, 9, 1).size(), 6U);
  EXPECT_EQ(all_pairs(scores, members, 0, 0, 1)[0], (Pair{5, 0, Answer::first}));
}

TEST_F(PairsTest, TablesComeBackAsTheyWere) {
  const std::vector<ImageFile> images = {{.path = {}, .name = "a, b.png", .score = -5},
                                         {.path = {}, .name = "c.png", .score = -5.1},
                                         {.path = {}, .name = "d.png", .score = 3}};
  const std::vector<Pair> pairs = {{0, 2, Answer::second}, {0, 1, Answer::similar}, {2, 1, Answer::first}};
  const auto file = folder_.path() / "pairs.csv";
  write_pairs(Fs::real(), file, pairs, images);
  EXPECT_EQ(Fs::real().read_file(file).substr(0, kHead.size() + 44), kHead + "\"a, b.png\",d.png,-5.000000,3.000000,Second\n\"");
  std::vector<ImageFile> read;
  const auto again = read_pairs(file, 0.2, read);
  ASSERT_EQ(again.size(), 3U);
  EXPECT_EQ(read[0].name, "a, b.png");
  EXPECT_EQ(again[1].label, Answer::similar);
  EXPECT_EQ(read[static_cast<std::size_t>(again[2].second)].name, "c.png");
}

TEST_F(PairsTest, ABadRowIsNamed) {
  const auto said = [&](const std::string& rows) {
    return refusal<DataError>([&] {
      std::vector<ImageFile> images;
      (void)read_pairs(write("p.csv", kHead + rows), 0.2, images);
    });
  };
  EXPECT_THAT(said("a,b,-5,-25,Second\n"), HasSubstr("row 1: scores -5 and -25 give First, but the file says Second"));
  EXPECT_THAT(said("a,b,-5,-25,First\na,b,-5,x,First\n"), HasSubstr("row 2: the score \"x\" is not a finite number"));
  EXPECT_THAT(said("a,b,inf,1,First\n"), HasSubstr("not a finite number"));
  EXPECT_THAT(said("a,b,1,2,second\n"), HasSubstr("the label is \"second\""));
  EXPECT_THAT(said("a,b,1,2\n"), HasSubstr("it has 4 cells, not 5"));
  EXPECT_THAT(said("a,b,1,2,Second\nb,c,3,1,First\n"), HasSubstr("\"b\" has score 3.000000, but 2.000000 in an earlier row"));
  EXPECT_THAT(said(""), HasSubstr("no pairs"));
  EXPECT_THAT(refusal<DataError>([&] {
                std::vector<ImageFile> images;
                (void)read_pairs(write("q.csv", "x,y\n"), 0.2, images);
              }),
              HasSubstr("does not begin with the columns img1,img2,score1,score2,label"));
}

TEST_F(PairsTest, ImagesAreFoundUnderRootsWithoutPrefixes) {
  write("pictures/x/a.png", "");
  write("pictures/b.png", "");
  RecipeConfig recipe;
  recipe.train_pairs = write("t.csv", kHead + "/old/home/x/a.png,b.png,1,2,Second\n").string();
  recipe.data_roots = {(folder_.path() / "nowhere").string(), (folder_.path() / "pictures").string()};
  recipe.strip_prefixes = {"/old/home"};
  const PairFiles files = open_pairs(recipe, "", 1);
  EXPECT_EQ(files.images[0].path, folder_.path() / "pictures/x/a.png");
  EXPECT_TRUE(files.validation.empty());
  recipe.strip_prefixes.clear();
  EXPECT_THAT(refusal<DataError>([&] { (void)open_pairs(recipe, "", 1); }),
              AllOf(HasSubstr("image \"/old/home/x/a.png\" does not exist"), HasSubstr("nowhere"), HasSubstr("pictures")));
}

TEST_F(PairsTest, AnImageThatIsNotThereGoesByThePolicyForBadSamples) {
  write("b.png", "");
  RecipeConfig recipe;
  recipe.train_pairs = write("t.csv", kHead + "gone.png,b.png,1,2,Second\nb.png,lost.png,2,3,Second\n").string();
  recipe.data_roots = {folder_.path().string()};
  DataConfig input;
  EXPECT_THAT(refusal([&] { (void)open_pairs(recipe, "", 1, input); }), HasSubstr("image \"gone.png\" does not exist"));
  input.bad_samples = data::BadSamples::skip;
  EXPECT_THAT(
      refusal([&] { (void)open_pairs(recipe, "", 1, input); }),
      AllOf(HasSubstr("2 of 2 pairs to train on can't be used, more than the fraction 0.001 that is allowed; the last: image "
                      "\"lost.png\" does not exist"),
            HasSubstr("set data.max_bad_fraction to 1, or")));
  input.max_bad_fraction = 1;
  EXPECT_THAT(open_pairs(recipe, "", 1, input).notices,
              ::testing::Contains("2 of 3 images can't be used, the first: image \"gone.png\" does not exist; their samples are "
                                  "treated as data.bad_samples says: skip"));
}

TEST_F(PairsTest, AnImageOnBothSidesIsALeak) {
  RecipeConfig recipe;
  recipe.train_pairs = write("t.csv", kHead + "a.png,b.png,1,2,Second\n").string();
  recipe.val_pairs = write("v.csv", kHead + "c.png,b.png,1,2,Second\n").string();
  EXPECT_THAT(refusal<DataError>([&] { (void)open_pairs(recipe, "", 1); }),
              HasSubstr("image \"b.png\" is in pairs to train on and in pairs to validate"));
}

TEST_F(PairsTest, AFileOnBothSidesIsALeakUnderTwoNamesToo) {
  for (const char* name : {"a.png", "b.png", "c.png"}) write(name, "");
  RecipeConfig recipe;
  recipe.data_roots = {folder_.path().string()};
  recipe.strip_prefixes = {"old/", "new/"};
  recipe.train_pairs = write("t.csv", kHead + "old/a.png,old/b.png,1,2,Second\n").string();
  recipe.val_pairs = write("v.csv", kHead + "new/c.png,new/b.png,1,2,Second\n").string();
  EXPECT_THAT(refusal<DataError>([&] { (void)open_pairs(recipe, "", 1); }),
              AllOf(HasSubstr("image \"new/b.png\" is in pairs to train on and in pairs to validate with"),
                    HasSubstr("its file is also that of \"old/b.png\"")));
  recipe.val_pairs = write("v.csv", kHead + "new/c.png,new/c.png,1,1,Similar\n").string();
  EXPECT_EQ(open_pairs(recipe, "", 1).validation.size(), 1U);
}

TEST_F(PairsTest, GroupsThatNameNoImageAreRefusedAndThoseThatLeaveSomeOutAreSaid) {
  std::string labels;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"}) {
    write(std::string("images/") + name, "");
    labels += std::string(name) + " " + std::to_string(name[0] % 2) + "\n";
  }
  RecipeConfig recipe;
  recipe.labels = write("labels.txt", labels).string();
  recipe.data_roots = {(folder_.path() / "images").string()};
  recipe.folds = 2;
  recipe.per_class = 1;
  (void)write("groups.txt", "images/a\tx\nimages/b\tx\n");
  EXPECT_THAT(refusal<DataError>([&] { (void)open_pairs(recipe, "", 1); }),
              HasSubstr("the file of groups names none of the 8 labelled images"));
  (void)write("groups.txt", "a\tx\nb\tx\nc\ty\nd\ty\n");
  EXPECT_THAT(open_pairs(recipe, "", 1).notices,
              ::testing::Contains("groups.txt names no group for 4 of 8 images: each of them is a group of its own"));
}

TEST_F(PairsTest, NamesOfTablesTellTheirRows) {
  std::vector<Labelled> labels;
  for (int i = 0; i < 40; ++i) labels.push_back({"i" + std::to_string(100 + i), i % 4 * 1.0});
  RecipeConfig recipe;
  recipe.per_class = 20;
  recipe.folds = 4;
  const auto told = write_pair_files(Fs::real(), labels, recipe, folder_.path(), 42);
  EXPECT_EQ(told.size(), 8U);
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / "train_fold1_60.csv"));
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / "eval_fold4_45.csv"));
  EXPECT_EQ(even_in_score(labels, 3, 0.1, 1).size(), 12U) << "three of each score";
  const auto bytes = [&](const char* name) { return Fs::real().read_file(folder_.path() / name); };
  const std::string train = bytes("train_fold1_60.csv"), eval = bytes("eval_fold4_45.csv");
  (void)write_pair_files(Fs::real(), labels, recipe, folder_.path(), 43);
  EXPECT_NE(bytes("train_fold1_60.csv"), train);
  (void)write_pair_files(Fs::real(), labels, recipe, folder_.path(), 42);
  EXPECT_EQ(bytes("train_fold1_60.csv"), train) << "the same seed";
  EXPECT_EQ(bytes("eval_fold4_45.csv"), eval);
}

}  // namespace
}  // namespace millrace::recipes::image_pairs
