// Describes a file's data sets: names, types, layouts, tables of chunks, and digests.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "millrace/base/hash.h"
#include "millrace/hdf5/child/attributes.h"
#include "millrace/hdf5/child/driver.h"
#include "millrace/hdf5/child/jobs.h"
#include "millrace/hdf5/child/open.h"
#include "millrace/hdf5/detail/attribute_wire.h"
#include "millrace/hdf5/detail/wire.h"
#include "millrace/hdf5/remedy.h"

namespace millrace::hdf5::child {
namespace {

using detail::Answer;
using detail::Chunk;
using detail::WireReader;
using detail::WireWriter;

constexpr std::uint64_t kMaxChunks = std::uint64_t{1} << 22U;
constexpr std::int64_t kMaxChunkBytes = std::int64_t{1} << 30U;
constexpr std::int64_t kMaxDigestBytes = std::int64_t{1} << 24U;
constexpr std::size_t kMaxListed = 100'000;
constexpr std::ptrdiff_t kMaxLevels = 64;
constexpr std::size_t kMaxText = 1024;

struct Plan {
  std::vector<std::uint32_t> filters;
  std::vector<std::int64_t> chunk;
  std::uint64_t address = detail::kNoAddress;
  std::string reason;  // why only the library can read the data set; "" if File can read it directly
};

struct Block {
  std::vector<std::int64_t> offset;
  std::vector<std::int64_t> count;
};

std::int64_t product(std::span<const std::int64_t> sizes) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) {
    if (__builtin_mul_overflow(count, size, &count)) throw LibraryError("an impossible shape");
  }
  return count;
}

std::vector<std::uint32_t> filters_of(hid_t creation, std::size_t element_bytes, std::string& reason) {
  std::vector<std::uint32_t> filters;
  const int count = H5Pget_nfilters(creation);
  check(count);
  int compressors = 0;
  for (int i = 0; i < count; ++i) {
    std::array<char, 64> name{};
    std::size_t values = 1;
    unsigned value = 0;
    unsigned flags = 0;
    unsigned config = 0;
    const auto index = static_cast<unsigned>(i);
    const H5Z_filter_t id = H5Pget_filter2(creation, index, &flags, &values, &value, name.size() - 1, name.data(), &config);
    check(id);
    if (H5Zfilter_avail(id) <= 0) {
      throw LibraryError("filter " + std::to_string(id) + " (" + name.data() + "), " + std::string(kUnknownFilter));
    }
    const bool compresses = id == H5Z_FILTER_DEFLATE || id == 32000 || id == 32004 || id == 32015;
    compressors += static_cast<int>(compresses);
    if (!compresses && id != H5Z_FILTER_SHUFFLE && id != H5Z_FILTER_FLETCHER32) reason = "filter " + std::string(name.data());
    if (id == H5Z_FILTER_SHUFFLE && value != element_bytes) reason = "shuffled in units other than its elements";
    filters.push_back(static_cast<std::uint32_t>(id));
  }
  if (compressors > 1) reason = "more than one compression";
  return filters;
}

// Refuses a virtual data set unless each of its sources is an existing data set of this file. Where a source is missing, the
// library would return zeros.
void check_virtual(hid_t file, hid_t creation) {
  std::size_t count = 0;
  check(H5Pget_virtual_count(creation, &count));
  for (std::size_t i = 0; i < count; ++i) {
    std::array<char, 1024> name{};
    if (H5Pget_virtual_filename(creation, i, name.data(), name.size()) < 0 || std::string_view(name.data()) != ".") {
      throw LibraryError("a virtual data set of other files (" + std::string(name.data()) + ")");
    }
    const auto size = H5Pget_virtual_dsetname(creation, i, name.data(), name.size());
    if (size < 0 || static_cast<std::size_t>(size) >= name.size())
      throw LibraryError("a virtual data set whose source has too long a name");
    const Id source = Id(H5Dopen2(file, name.data(), H5P_DEFAULT));
    if (source.get() < 0) {
      H5Eclear2(H5E_DEFAULT);
      throw LibraryError("a virtual data set whose source " + std::string(name.data()) + " is missing");
    }
    const Id source_creation = owned(H5Dget_create_plist(source.get()));
    if (H5Pget_layout(source_creation.get()) == H5D_VIRTUAL) throw LibraryError("a virtual data set of virtual data sets");
  }
}

Plan plan_of(const OpenDataset& dataset, hid_t file) {
  Plan plan;
  const hid_t creation = dataset.creation.get();
  const H5D_layout_t layout = H5Pget_layout(creation);
  if (!dataset.same_in_memory) plan.reason = dataset.big_endian ? "big-endian" : "elements laid out differently than in memory";
  if (layout == H5D_COMPACT) plan.reason = "compact layout";
  if (layout == H5D_VIRTUAL) {
    check_virtual(file, creation);
    plan.reason = "virtual layout";
  }
  if (layout == H5D_CONTIGUOUS) {
    if (H5Pget_external_count(creation) > 0) throw LibraryError("data in external files");
    // The status is checked first, because in a file with a user block H5Dget_offset returns a wrong address for data that were
    // never written.
    H5D_space_status_t status = H5D_SPACE_STATUS_NOT_ALLOCATED;
    check(H5Dget_space_status(dataset.id.get(), &status));
    if (status == H5D_SPACE_STATUS_ALLOCATED) plan.address = H5Dget_offset(dataset.id.get());
    H5Eclear2(H5E_DEFAULT);
  }
  if (layout == H5D_CHUNKED) {
    std::vector<hsize_t> sizes(dataset.shape.size());
    check(H5Pget_chunk(creation, static_cast<int>(sizes.size()), sizes.data()));
    plan.chunk.assign(sizes.begin(), sizes.end());
    plan.filters = filters_of(creation, dataset.element_bytes, plan.reason);
    unsigned options = 0;
    check(H5Pget_chunk_opts(creation, &options));
    if (options != 0) plan.reason = "unfiltered edge chunks";
    if (product(plan.chunk) > kMaxChunkBytes / static_cast<std::int64_t>(dataset.element_bytes)) {
      plan.reason = "chunks of more than 1 GiB";
    }
    std::uint64_t chunks = 1;
    for (std::size_t d = 0; d < plan.chunk.size(); ++d) {
      const auto along = static_cast<std::uint64_t>((dataset.shape[d] + plan.chunk[d] - 1) / plan.chunk[d]);
      if (__builtin_mul_overflow(chunks, along, &chunks) || chunks > kMaxChunks) {
        plan.reason = "more than " + std::to_string(kMaxChunks) + " chunks";
        break;
      }
    }
  }
  return plan;
}

// Returns the table of chunks, in C order over their grid.
std::vector<Chunk> table_of(const OpenDataset& dataset, const Plan& plan) {
  std::vector<Chunk> table;
  hsize_t written = 0;
  const Id space = owned(H5Dget_space(dataset.id.get()));
  check(H5Dget_num_chunks(dataset.id.get(), space.get(), &written));
  std::int64_t total = 1;
  std::vector<std::int64_t> grid;
  for (std::size_t d = 0; d < plan.chunk.size(); ++d) {
    grid.push_back((dataset.shape[d] + plan.chunk[d] - 1) / plan.chunk[d]);
    total *= grid.back();
  }
  table.resize(static_cast<std::size_t>(total));
  if (written == 0) return table;
  std::vector<hsize_t> at(grid.size(), 0);
  hsize_t found = 0;
  char unused = 0;
  start_recording();
  for (Chunk& chunk : table) {
    const herr_t result = H5Dread_chunk(dataset.id.get(), H5P_DEFAULT, at.data(), &chunk.mask, &unused);
    if (const auto read = last_recorded(); result >= 0 && read) {
      chunk.address = read->address;
      chunk.size = static_cast<std::uint32_t>(read->size);
      ++found;
    } else {
      H5Eclear2(H5E_DEFAULT);
      chunk = Chunk{};
    }
    for (std::size_t d = at.size(); d-- > 0;) {
      at[d] += static_cast<hsize_t>(plan.chunk[d]);
      if (at[d] < static_cast<hsize_t>(dataset.shape[d])) break;
      at[d] = 0;
    }
  }
  stop_recording();
  if (found != written) {
    throw LibraryError("an index of " + std::to_string(written) + " chunks, of which " + std::to_string(found) + " are found");
  }
  return table;
}

// Returns the blocks to compare. If the data set has chunks: the first two that were written and the last one, clipped at the
// edge. If it is contiguous: a block at each end. A block of more than kMaxDigestBytes is made smaller.
std::vector<Block> blocks_to_check(const OpenDataset& dataset, const Plan& plan, std::span<const Chunk> table) {
  std::vector<Block> blocks;
  if (product(dataset.shape) == 0) return blocks;
  const auto most = kMaxDigestBytes / static_cast<std::int64_t>(dataset.element_bytes);
  const auto add = [&](Block block) {
    for (std::size_t d = 0; product(block.count) > most; block.count[d] > 1 ? block.count[d] = (block.count[d] + 1) / 2 : ++d) {
    }
    blocks.push_back(std::move(block));
  };
  if (plan.chunk.empty()) {
    if (plan.address == detail::kNoAddress) return blocks;
    Block first{std::vector<std::int64_t>(dataset.shape.size(), 0), dataset.shape};
    if (!first.count.empty()) {
      first.count[0] = std::min<std::int64_t>(first.count[0], 2);
      Block last = first;
      last.offset[0] = dataset.shape[0] - 1;
      last.count[0] = 1;
      add(std::move(last));
    }
    add(std::move(first));
    return blocks;
  }
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < table.size() && chosen.size() < 2; ++i) {
    if (table[i].address != detail::kNoAddress) chosen.push_back(i);
  }
  if (!chosen.empty() && chosen.back() + 1 < table.size() && table.back().address != detail::kNoAddress) {
    chosen.push_back(table.size() - 1);
  }
  for (const std::size_t index : chosen) {
    Block block{plan.chunk, plan.chunk};
    auto rest = static_cast<std::int64_t>(index);
    for (std::size_t d = plan.chunk.size(); d-- > 0;) {
      const std::int64_t along = (dataset.shape[d] + plan.chunk[d] - 1) / plan.chunk[d];
      block.offset[d] = rest % along * plan.chunk[d];
      block.count[d] = std::min(plan.chunk[d], dataset.shape[d] - block.offset[d]);
      rest /= along;
    }
    add(std::move(block));
  }
  return blocks;
}

void put_digests(WireWriter& out, const OpenDataset& dataset, std::span<const Block> blocks) {
  out.put(static_cast<std::uint32_t>(blocks.size()));
  std::string bytes;
  for (const Block& block : blocks) {
    std::string words;
    try {
      bytes.assign(static_cast<std::size_t>(product(block.count)) * dataset.element_bytes, '\0');
      read_block(dataset, block.offset, block.count, bytes.data());
    } catch (const LibraryError& error) {
      words = error.what();
    } catch (const std::bad_alloc&) {
      words = "the library has reached its limit on memory";
    }
    out.list(std::span<const std::int64_t>(block.offset)).list(std::span<const std::int64_t>(block.count));
    out.text(words).put(crc32c(std::as_bytes(std::span(bytes))));
  }
}

// Writes the layout of a data set, and its attributes while there is room. Throws LibraryError if the data set can't be read at
// all.
void put_dataset(WireWriter& out, const OpenDataset& dataset, hid_t file, std::size_t& room) {
  Plan plan = plan_of(dataset, file);
  std::vector<Chunk> table;
  if (plan.reason.empty() && !plan.chunk.empty()) table = table_of(dataset, plan);
  std::string fill;
  H5D_fill_value_t defined = H5D_FILL_VALUE_UNDEFINED;
  check(H5Pfill_value_defined(dataset.creation.get(), &defined));
  if (defined != H5D_FILL_VALUE_UNDEFINED) {
    fill.resize(dataset.element_bytes);
    check(H5Pget_fill_value(dataset.creation.get(), dataset.memory_type.get(), fill.data()));
  }
  std::vector<Block> blocks;
  if (plan.reason.empty()) blocks = blocks_to_check(dataset, plan, table);
  out.put(dataset.dtype).list(std::span<const std::int64_t>(dataset.shape)).list(std::span<const std::int64_t>(plan.chunk));
  out.text(plan.reason).text(fill).put(plan.address);
  out.list(std::span<const std::uint32_t>(plan.filters)).list(std::span<const Chunk>(table));
  put_digests(out, dataset, blocks);
  detail::put_attributes(out, attributes_of(dataset.id.get(), room));
}

// Limits the walk through a file's objects. Without limits a file could make the walk arbitrarily long, because the library
// finds each object by its whole path.
struct Walk {
  std::vector<std::string> names;
  std::size_t seen = 0;
  std::string refusal;

  herr_t goes_on(std::string_view name) {
    if (++seen > kMaxListed) refusal = "more than " + std::to_string(kMaxListed) + " objects";
    if (std::count(name.begin(), name.end(), '/') >= kMaxLevels)
      refusal = "groups nested more than " + std::to_string(kMaxLevels) + " deep";
    return refusal.empty() ? 0 : 1;
  }
  void end(herr_t result) {
    check(result);
    if (!refusal.empty()) throw LibraryError(refusal);
    seen = 0;
  }
};

herr_t collect_dataset(hid_t, const char* name, const H5O_info_t* info, void* to) {
  auto& walk = *static_cast<Walk*>(to);
  if (info->type == H5O_TYPE_DATASET) walk.names.push_back('/' + std::string(name));
  return walk.goes_on(name);
}

// Collects links to other files, so that they are reported as rejected.
herr_t collect_foreign_link(hid_t, const char* name, const H5L_info_t* info, void* to) {
  auto& walk = *static_cast<Walk*>(to);
  if (info->type == H5L_TYPE_EXTERNAL) walk.names.push_back('/' + std::string(name));
  return walk.goes_on(name);
}

std::vector<std::string> all_datasets(hid_t file) {
  Walk walk;
  walk.end(H5Ovisit2(file, H5_INDEX_NAME, H5_ITER_INC, collect_dataset, &walk, H5O_INFO_BASIC));
  walk.end(H5Lvisit(file, H5_INDEX_NAME, H5_ITER_INC, collect_foreign_link, &walk));
  return std::move(walk.names);
}

// Returns the value of a data set that is one short text, of fixed or variable length; "" for all other data sets.
std::string text_of(hid_t file, const std::string& name) {
  const Id dataset = owned(H5Dopen2(file, name.c_str(), H5P_DEFAULT));
  const Id type = owned(H5Dget_type(dataset.get()));
  const Id space = owned(H5Dget_space(dataset.get()));
  if (H5Tget_class(type.get()) != H5T_STRING || H5Sget_simple_extent_npoints(space.get()) != 1) return {};
  const auto read = [&](void* to) { return H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, to); };
  return read_text(type.get(), space.get(), kMaxText, read).value_or("");
}

}  // namespace

std::string describe(int descriptor, const std::string& request) {
  WireWriter answer;
  try {
    WireReader wanted(request);
    std::vector<std::string> names(wanted.get<std::uint32_t>());
    for (std::string& name : names) name = wanted.text();
    const Id file = open_file(descriptor);
    const bool all = names.empty();
    if (all) names = all_datasets(file.get());
    std::size_t room = kMaxAttributesOfFile;
    answer.put(Answer::ok);
    detail::put_attributes(answer, attributes_of(file.get(), room));
    answer.put(static_cast<std::uint32_t>(names.size()));
    for (const std::string& name : names) {
      answer.text(name);
      WireWriter one;
      try {
        const OpenDataset dataset = open_dataset(file.get(), name);
        put_dataset(one, dataset, file.get(), room);
        answer.text("").text(one.bytes());
      } catch (const LibraryError& error) {
        stop_recording();
        const std::string reason = error.what();
        std::string text;
        if (reason == "text") {
          try {
            text = text_of(file.get(), name);
          } catch (const LibraryError&) {  // the data set is then described without its text
          }
        }
        answer.text(reason).text(text);
      }
    }
  } catch (const MissingError& error) {
    answer = WireWriter();
    answer.put(Answer::missing).text(error.what()).text(error.has());
  } catch (const std::exception& error) {  // a LibraryError or std::bad_alloc, caused by the file
    answer = WireWriter();
    answer.put(Answer::refused).text(error.what());
  }
  return answer.bytes();
}

}  // namespace millrace::hdf5::child
