// Tests of open sessions: what they hold, how they are split, and the errors with their texts.
#include "recipes/neural_response/sessions/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <set>

#include "millrace/format/npy.h"
#include "recipes/neural_response/detail/test_sessions.h"
#include "recipes/neural_response/sessions/session_look.h"

namespace millrace::recipes::neural_response {
namespace {

using namespace test;
using testing::Each;
using testing::ElementsAre;

std::vector<float> counts_of(const Session& session, std::int64_t bin) {
  std::vector<float> counts(static_cast<std::size_t>(session.units()));
  session.counts(bin, counts);
  return counts;
}

std::vector<float> mask_of(const Session& session, std::int64_t bin) {
  std::vector<float> mask(static_cast<std::size_t>(session.units()));
  session.mask(bin, mask);
  return mask;
}

TEST_F(SessionTest, IsDownsampledFilteredAndSplitByTrial) {
  const auto session = one();
  EXPECT_EQ(session->bins(), 48);
  EXPECT_EQ(session->trials(), 4);
  EXPECT_EQ(session->lags(), 3);
  EXPECT_EQ(session->behavior_dim(), 42);
  EXPECT_EQ(session->stimulus_kind(), StimulusKind::pixels);
  EXPECT_THAT(session->cids(), ElementsAre(2, 0));
  // /robs[t, c] = (3 t + c) mod 5. Bin 5 consists of source bins 10 and 11; the columns are 2 and 0.
  EXPECT_THAT(counts_of(*session, 5), ElementsAre(32 % 5 + 35 % 5, 30 % 5 + 33 % 5));
  std::vector<std::uint8_t> frames(24);
  session->read_frames(7, 2, frames);
  EXPECT_EQ(frames[0], 14 * 12 * 7 % 251) << "every second frame, the first of each group";
  EXPECT_EQ(frames[12], 16 * 12 * 7 % 251);
  EXPECT_EQ(session->describe(7), "a/backimage.h5 bin 7");

  std::set<std::int64_t> training, validation;
  std::size_t bins = 0;
  for (const auto& [split, trials] : {std::pair{Split::train, &training}, std::pair{Split::validation, &validation}}) {
    for (const std::int64_t bin : session->samples(split)) {
      trials->insert(session->trial_of(bin));
      EXPECT_GE(bin % 12, 4) << "n_lags is 4: bins 0 to 3 of each trial of 12 have too short a past";
      ++bins;
    }
  }
  EXPECT_EQ(bins, 32U);
  EXPECT_EQ(training.size(), 3U);
  EXPECT_EQ(validation.size(), 1U);
  EXPECT_EQ(training.count(*validation.begin()), 0U);
}

TEST_F(SessionTest, ASeedGivesTheSameSplitAndAnotherAnother) {
  const auto validation = [this](const std::string& seed) {
    write("dataset.yaml", dataset_text() + "seed: " + seed + "\n");
    const auto session = one();
    return session->trial_of(session->samples(Split::validation)[0]);
  };
  EXPECT_EQ(validation("1"), validation("1"));
  std::set<std::int64_t> trials;
  for (int seed = 0; seed < 20; ++seed) trials.insert(validation(std::to_string(seed)));
  EXPECT_EQ(trials.size(), 4U);
}

TEST_F(SessionTest, AnEyeAtRestGivesFortyZerosAndItsPlace) {
  std::vector<float> eye;
  for (std::int64_t t = 0; t < kBins; ++t) {
    eye.push_back(0.5F);
    eye.push_back(-1.25F);
  }
  file()->set("/eyepos", DType::f32, {kBins, 2}, eye);
  const auto session = one();
  for (const std::int64_t bin : {0, 20, 47}) {
    const auto behavior = session->behavior(bin);
    EXPECT_THAT(behavior.first(40), Each(0.0F));
    EXPECT_THAT(behavior.subspan(40), ElementsAre(0.5F, -1.25F));
  }
}

TEST_F(SessionTest, SpikesLostTakeAUnitOutAndMeansAreOverWhatCounts) {
  std::vector<float> missing(kBins * 3, 0.0F);
  for (std::size_t t = 0; t < kBins; ++t) missing[t * 3 + 2] = t < 48 ? 45.0F : 44.9F;
  file()->set("/missing_pct", DType::f32, {kBins, 3}, missing);
  const auto session = one();
  EXPECT_THAT(mask_of(*session, 10), ElementsAre(0, 1));
  EXPECT_THAT(mask_of(*session, 30), ElementsAre(1, 1));
  EXPECT_THAT(mask_of(*session, 24), ElementsAre(0, 0)) << "the first bin of a trial";
  double sum = 0;
  double bins = 0;
  for (const std::int64_t bin : session->samples(Split::train)) {
    if (bin < 24) continue;
    sum += counts_of(*session, bin)[0];
    ++bins;
  }
  EXPECT_NEAR(session->mean_counts()[0], sum / bins, 1e-6);
}

TEST_F(SessionTest, CountsThatAreNoWholeNumbersStayAsTheyAre) {
  std::vector<float> robs(kBins * 3);
  for (std::size_t i = 0; i < robs.size(); ++i) robs[i] = 0.25F * static_cast<float>(i);
  file()->set("/robs", DType::f32, {kBins, 3}, robs);
  const auto session = one();
  const auto counts = counts_of(*session, 40);
  EXPECT_EQ(counts[0], robs[80 * 3 + 2] + robs[81 * 3 + 2]);
}

TEST_F(SessionTest, TypesOfASessionStandOneAfterTheOther) {
  write("dataset.yaml", dataset_text() + "types: [backimage, gaborium]\n");
  write("a/gaborium.h5", "");
  const auto session = one();
  EXPECT_EQ(session->bins(), 96);
  EXPECT_EQ(session->trials(), 8) << "trials of two types are two, whatever their number";
  EXPECT_EQ(session->describe(50), "a/gaborium.h5 bin 2");
  std::vector<std::uint8_t> frame(12);
  session->read_frames(50, 1, frame);
  EXPECT_EQ(frame[0], 4 * 12 * 7 % 251);
}

TEST_F(SessionTest, ContrastIsAFramesDeviationAndWeighsTheFirstSteps) {
  std::vector<std::uint8_t> stim(kBins * 12, 100);
  for (std::size_t t = 0; t < kBins; ++t) {
    for (std::size_t p = 0; p < 12; p += 2) stim[t * 12 + p] = static_cast<std::uint8_t>(100 + 2 * (t / 2));
  }
  file()->set("/stim", DType::u8, {kBins, 4, 3}, stim);
  const Sessions sessions = open();
  const Session& session = *sessions.all[0];
  for (const std::int64_t bin : {0, 9, 47}) EXPECT_NEAR(session.contrasts()[static_cast<std::size_t>(bin)], bin, 1e-5);
  const double median = median_contrast(sessions);
  const auto samples = session.samples(Split::train);
  EXPECT_EQ(median, static_cast<double>(samples[samples.size() / 2]));
  EXPECT_THAT(curriculum_weights(session, median, 0), Each(0.5F));
  const auto weights = curriculum_weights(session, median, 4000);
  for (std::size_t i = 0; i < weights.size(); ++i)
    EXPECT_NEAR(weights[i], std::min(1.0, 0.5 + 0.25 * static_cast<double>(samples[i]) / median), 1e-6);
}

TEST_F(SessionTest, AnotherRateThanTheFilesClockIsTold) {
  EXPECT_TRUE(open().notices.size() == 2) << "of maxnorm and temporal_basis";
  std::vector<double> seconds;
  for (std::int64_t t = 0; t < kBins; ++t) seconds.push_back(static_cast<double>(t) / 1000 + (t > 50 ? 7.0 : 0.0));
  file()->set("/t_bins", DType::f64, {kBins}, seconds);
  EXPECT_THAT(open().notices,
              testing::IsSupersetOf({"a/backimage.h5: /t_bins are 1 ms apart, which is 1000 Hz, but sampling.source_rate is 240",
                                     "a/backimage.h5: /t_bins step by 7 s at bin 51, in trial 12, where a step usually takes 1 "
                                     "ms. No window crosses an irregular step"}));
}

TEST_F(SessionTest, NoWindowReachesOverAPlaceWhereTheClockGoesBack) {
  const auto bins_of = [this] {
    const auto session = one();
    std::vector<std::int64_t> bins;
    for (const Split split : {Split::train, Split::validation}) {
      const auto samples = session->samples(split);
      bins.insert(bins.end(), samples.begin(), samples.end());
    }
    std::sort(bins.begin(), bins.end());
    return bins;
  };
  const std::vector<std::int64_t> sound = bins_of();
  for (const std::int64_t place : {59, 60}) {  // source bins of a trial that begins at 48; 59 is inside a bin of two source bins
    std::vector<double> seconds;
    for (std::int64_t t = 0; t < kBins; ++t) seconds.push_back(static_cast<double>(t < place ? t : t - place) / 240);
    file()->set("/t_bins", DType::f64, {kBins}, seconds);
    const std::int64_t first = place / 2, lags = one()->lags();
    std::vector<std::int64_t> left;
    std::ranges::copy_if(sound, std::back_inserter(left), [&](std::int64_t bin) { return bin < first || bin >= 36; });
    std::vector<std::int64_t> outside;
    for (const std::int64_t bin : bins_of()) {
      EXPECT_FALSE(bin >= first && bin - (lags - 1) < first + (place % 2)) << bin << " crosses " << place;
      if (bin < first || bin >= 36) outside.push_back(bin);
    }
    EXPECT_EQ(outside, left) << "other trials, and what lies before, stay as they are";
  }
}

TEST_F(SessionTest, AnotherRateThanTheFilesAttributeIsRefused) {
  const std::string where = "\n  where    " + (folder_ / "a" / "backimage.h5").string() + "\n  next     ";
  const std::string correct = "correct the file's attribute source_rate: bins per second";
  const auto with = [this](hdf5::Attribute rate) {
    file()->own_attributes.all = {std::move(rate)};
    return refused();
  };
  EXPECT_EQ(with({"source_rate", 500.0}),
            "DataError  a/backimage.h5 has bins at 500 Hz, as its attribute source_rate says; sampling.source_rate is 240" +
                where + "set sampling.source_rate to 500 in the dataset file, or " + correct);
  EXPECT_EQ(with({"source_rate", NAN}),
            "DataError  a/backimage.h5 has bins at nan Hz, as its attribute source_rate says; sampling.source_rate is 240" +
                where + correct);
  EXPECT_EQ(with({"source_rate", std::string("240")}),
            "DataError  a/backimage.h5: its attribute source_rate is \"240\", expected a number" + where + correct);
  EXPECT_EQ(
      with({"source_rate", {}, "an array of 3 elements"}),
      "DataError  a/backimage.h5: its attribute source_rate is an array of 3 elements, expected a number" + where + correct);
  for (const hdf5::AttributeValue& rate :
       std::vector<hdf5::AttributeValue>{std::int64_t{240}, std::uint64_t{240}, 240.0, 240.00001})
    EXPECT_EQ(with({"source_rate", rate}), "accepted");
  EXPECT_EQ(with({"rate", 500.0}), "accepted");
}

TEST_F(SessionTest, AttributesThatNameAnotherPlaceAreTold) {
  const auto notice_of = [this](std::vector<hdf5::Attribute> attributes) {
    file()->own_attributes.all = std::move(attributes);
    return open().notices;
  };
  const std::vector<std::string> usual = notice_of({});
  const hdf5::Attribute session{"session", std::string("a")}, type{"type", std::string("backimage")};
  EXPECT_EQ(notice_of({session, type}), usual);
  EXPECT_EQ(notice_of({session, {"type", std::string("gratings")}}).back(),
            "a/backimage.h5: its attributes say type \"gratings\"; Millrace ignores them and takes session and type from the "
            "file's path");
  const std::vector<std::string> notices = notice_of({{"session", std::int64_t{7}}, {"type", {}, "an array of 2 elements"}});
  EXPECT_EQ(notices.size(), usual.size() + 1) << "one line for a file";
  EXPECT_EQ(notices.back(),
            "a/backimage.h5: its attributes say session 7, type an array of 2 elements; Millrace ignores them and takes session "
            "and type from the file's path");
  file()->own_attributes = {.all = {}, .left_out = 0, .failure = "bad version number"};
  EXPECT_EQ(open().notices.back(), "a/backimage.h5: its attributes can't be read, and are left out: bad version number");
}

// Real responses of mouse visual cortex to images. They are deconvolved, so they are not whole numbers.
TEST_F(SessionTest, RealResponsesAreReadAsTheyAre) {
  const std::filesystem::path folder = std::filesystem::path(MILLRACE_SOURCE_DIR) / "../shared/data/neural";
  if (!std::filesystem::exists(folder / "region1_raw_validation_set.npy"))
    GTEST_SKIP() << "no real responses in ../shared/data/neural";
  const format::NpyFile responses(folder / "region1_raw_validation_set.npy");
  const format::NpyFile images(folder / "region1_validation_inputs.npy");
  ASSERT_EQ(responses.layout().shape, (Shape{10, 50, 103}));
  ASSERT_EQ(images.layout().shape, (Shape{50, 961}));
  std::vector<double> answers(10 * 50 * 103);
  std::vector<double> pixels(50 * 961);
  responses.read(std::as_writable_bytes(std::span(answers)));
  images.read(std::as_writable_bytes(std::span(pixels)));
  constexpr std::int64_t kHold = 10;  // number of source bins for which an image is shown; each image and repeat is a trial
  const auto bins = std::int64_t{500} * kHold;
  std::vector<std::uint8_t> stim;
  std::vector<float> robs;
  std::vector<std::int64_t> trials;
  for (std::int64_t t = 0; t < bins; ++t) {
    const std::int64_t trial = t / kHold;
    trials.push_back(trial);
    for (std::int64_t p = 0; p < 961; ++p)
      stim.push_back(
          static_cast<std::uint8_t>(std::lround(pixels[static_cast<std::size_t>(trial % 50 * 961 + p)] / 0.000255 * 255)));
    for (std::int64_t u = 0; u < 103; ++u)
      robs.push_back(static_cast<float>(answers[static_cast<std::size_t>(trial * 103 + u)] / kHold));
  }
  const auto file = this->file();
  file->claimed_size = stim.size() + robs.size() * 4;
  file->set("/stim", DType::u8, {bins, 31, 31}, stim);
  file->set("/robs", DType::f32, {bins, 103}, robs);
  file->set("/eyepos", DType::f32, {bins, 2}, std::vector<float>(static_cast<std::size_t>(bins) * 2));
  file->set("/dpi_valid", DType::u8, {bins}, std::vector<std::uint8_t>(static_cast<std::size_t>(bins), 1));
  file->set("/trial_inds", DType::i64, {bins}, trials);
  file->remove("/t_bins");
  std::string cids;
  for (int u = 0; u < 103; ++u) cids += (u == 0 ? "" : ", ") + std::to_string(u);
  write("sessions/a.yaml", "session: a\ncids: [" + cids + "]\n");
  const auto session = one();
  EXPECT_EQ(session->trials(), 500);
  EXPECT_EQ(session->samples(Split::train).size(), 400U);  // bin 4 of the 5 bins of each trial
  EXPECT_EQ(session->samples(Split::validation).size(), 100U);
  const std::int64_t bin = session->samples(Split::train)[7];
  const std::vector<float> counts = counts_of(*session, bin);
  double loss = 0;
  for (std::size_t u = 0; u < 103; ++u) {
    EXPECT_FLOAT_EQ(counts[u], static_cast<float>(answers[static_cast<std::size_t>(bin / 5) * 103 + u] / 5));
    const double log_rate = std::log(std::max(1e-3, static_cast<double>(session->mean_counts()[u])));
    loss += std::exp(log_rate) - static_cast<double>(counts[u]) * log_rate;
  }
  EXPECT_TRUE(std::isfinite(loss));
}

TEST_F(SessionTest, EveryFaultOfTheInputHasItsText) {
  const std::string where = "\n  where    " + (folder_ / "a" / "backimage.h5").string() + "\n  next     ";
  const auto with = [this](const std::function<void(MemoryFile&)>& change) {
    files_.clear();
    change(*file());
    return refused();
  };
  EXPECT_EQ(with([](MemoryFile& file) { file.remove("/dpi_valid"); }),
            "DataError  a/backimage.h5 has no /dpi_valid (has: /stim, /robs, /eyepos, /trial_inds, /t_bins)" + where +
                "write the session's files anew; their datasets are listed in the recipe's README");
  EXPECT_EQ(with([](MemoryFile& file) {
              file.set("/robs", DType::f32, {95, 3}, std::vector<float>(95 * 3));
            }),
            "DataError  a/backimage.h5: /robs has 95 bins, /stim has 96" + where +
                "write all datasets of a session with the same number of bins");
  EXPECT_EQ(with([](MemoryFile& file) {
              file.set("/robs", DType::u8, {kBins, 2}, std::vector<std::uint8_t>(kBins * 2));
            }),
            "DataError  cid 2, robs has 2 columns" + where + "correct the session's cids: they count from 0");
  const std::string repair = where + "counts are 0 or more: repair the file, or take the unit out of cids";
  for (const auto& [value, word] :
       {std::pair{std::numeric_limits<float>::quiet_NaN(), "nan"}, std::pair{HUGE_VALF, "inf"}, std::pair{-1.0F, "-1"}}) {
    std::vector<float> robs(kBins * 3);
    robs[40 * 3 + 2] = value;
    EXPECT_EQ(with([&](MemoryFile& file) {
                file.set("/robs", DType::f32, {kBins, 3}, robs);
              }),
              std::string("DataError  a/backimage.h5 /robs[40,2] is ") + word + repair);
    robs[40 * 3 + 1] = value;  // the column belongs to a unit that is not used
    robs[40 * 3 + 2] = 0;
    EXPECT_EQ(with([&](MemoryFile& file) { file.set("/robs", DType::f32, {kBins, 3}, robs); }), "accepted");
  }
  EXPECT_EQ(with([](MemoryFile& file) { file.set("/dpi_valid", DType::u8, {kBins}, std::vector<std::uint8_t>(kBins)); }),
            "DataError  session a has no valid bin left of 48: valid_nlags removes 48, missing_pct 0" + where +
                "look at /dpi_valid, /trial_inds and /missing_pct, or make the filters less strict");
  EXPECT_EQ(with([](MemoryFile& file) { file.set("/trial_inds", DType::i64, {kBins}, std::vector<std::int64_t>(kBins)); }),
            "DataError  session a has 1 trial, but a split by trial needs 2 or more" + where +
                "write more trial numbers into /trial_inds, or leave the session out");
  EXPECT_EQ(with([](MemoryFile& file) {
              file.set("/stim", DType::f32, {kBins, 4, 3}, std::vector<float>(kBins * 12));
            }),
            "DataError  a/backimage.h5: /stim is f32, expected u8" + where + "write grey levels from 0 to 255");
  EXPECT_EQ(with([](MemoryFile& file) {
              file.set("/eyepos", DType::f32, {kBins, 2}, std::vector<float>(kBins * 2, NAN));
            }),
            "DataError  a/backimage.h5 /eyepos[0,0] is nan" + where + "mark the bin with dpi_valid 0, or fill the gap");
  files_.clear();
  std::filesystem::remove(folder_ / "a" / "backimage.h5");
  EXPECT_EQ(refused(),
            "DataError  session a has no file backimage.h5" + where +
                "set data.dir to the folder that holds a/ and recipe.dataset_config to this dataset file, or make some: "
                "millrace make-data neural_response");
  write("a/backimage.dset", "");
  EXPECT_EQ(refused(), "DataError  a/backimage.dset is a Python pickle\n  where    " +
                           (folder_ / "a" / "backimage.dset").string() +
                           "\n  next     run tools/dset_to_h5.py on it, and only if you trust it: a pickle can run any program");
}

TEST_F(SessionTest, HostileHeadersAreRefused) {
  using Change = std::function<void(MemoryFile&)>;
  const std::int64_t huge = std::int64_t{1} << 40;
  for (const Change& change : std::vector<Change>{
           [](MemoryFile& file) {
             file.set_shape("/stim", {kBins, 12});
           },
           [](MemoryFile& file) { file.set_shape("/stim", {}); },
           [](MemoryFile& file) {
             file.set_shape("/stim", {0, 4, 3});
           },
           [](MemoryFile& file) {
             file.set_shape("/stim", {kBins, 0, 3});
           },
           [huge](MemoryFile& file) {
             file.set_shape("/stim", {huge, huge, huge});
           },
           [huge](MemoryFile& file) {
             file.set_shape("/stim", {kBins, huge, 3});
           },
           [huge](MemoryFile& file) {
             file.set_shape("/robs", {kBins, huge});
           },
           [](MemoryFile& file) { file.set_shape("/robs", {kBins}); },
           [](MemoryFile& file) {
             file.set_shape("/robs", {kBins, 0});
           },
           [](MemoryFile& file) {
             file.set_shape("/robs", {kBins, 3, 1});
           },
           [](MemoryFile& file) { file.set_dtype("/robs", DType::c64); },
           [](MemoryFile& file) {
             file.set_shape("/eyepos", {kBins, 2, 1});
           },
           [](MemoryFile& file) {
             file.set_shape("/trial_inds", {kBins, 1});
           },
           [](MemoryFile& file) { file.set("/trial_inds", DType::f64, {kBins}, std::vector<double>(kBins, 0.5)); },
           [](MemoryFile& file) { file.set("/trial_inds", DType::f64, {kBins}, std::vector<double>(kBins, 1e300)); },
           [](MemoryFile& file) {
             file.set("/dpi_valid", DType::f64, {kBins, 2}, std::vector<double>(kBins * 2, 1));
           },
           [](MemoryFile& file) { file.set("/dpi_valid", DType::f64, {kBins}, std::vector<double>(kBins, NAN)); },
           [](MemoryFile& file) {
             file.set("/missing_pct", DType::f32, {kBins, 1}, std::vector<float>(kBins));
           },
           [](MemoryFile& file) {
             file.not_readable = {{"/robs", "text"}};
           }}) {
    files_.clear();
    change(*file());
    EXPECT_THROW((void)open(), DataError);
  }
}

TEST_F(SessionTest, SessionsHaveOneNumberOfLagsAndOtherRatesAreTold) {
  std::string text = dataset_text();
  text.replace(text.find("sessions: [a]"), 13, "sessions: [a, b]");
  write("dataset.yaml", text);
  write("b/backimage.h5", "");
  write("sessions/b.yaml", "session: b\ncids: [1]\nkeys_lags: {stim: [0, 1]}\n");
  EXPECT_THAT(refused(), testing::HasSubstr("session b has 2 lags of the stimulus, session a has 3"));
  write("sessions/b.yaml", "session: b\ncids: [1]\nsampling: {source_rate: 240, target_rate: 60}\n");
  EXPECT_THAT(look_at_sessions(open()), testing::Contains(testing::HasSubstr("session b is read at 60 Hz, session a at 120")));
}

}  // namespace
}  // namespace millrace::recipes::neural_response
