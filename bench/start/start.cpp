// Times the start up to the first batch over a folder of HDF5 files with two data sets, /x and /y; prints one line of JSON.
//   bench_start FOLDER [INDEX_FOLDER]
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <vector>

#include "millrace/base/clock.h"
#include "millrace/data/loader/loader.h"
#include "millrace/data/sources/hdf5_source.h"

using namespace millrace;

int main(int argc, char** argv) try {
  if (argc < 2) return 2;
  const double began = steady_seconds();
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<data::Hdf5Field> fields = {{"x", "/x"}, {"y", "/y"}};
  const auto source = std::make_shared<data::Hdf5Source>(files, std::move(fields), data::Hdf5Samples::file,
                                                         hdf5::OpenOptions{.index_folder = argc > 2 ? argv[2] : ""});
  const double opened = steady_seconds();
  data::Loader loader(data::single(source), {.batch_size = 32, .seed = 1});
  const auto batch = loader.next();
  const double done = steady_seconds();
  std::printf("{\"files\": %zu, \"described\": %llu, \"opened_s\": %.4f, \"first_batch_s\": %.4f, \"rows\": %zu}\n", files.size(),
              static_cast<unsigned long long>(hdf5::files_described()), opened - began, done - began,
              batch ? batch->groups.front().positions.size() : 0);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
