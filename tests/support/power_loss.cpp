#include "tests/support/power_loss.h"

#include <algorithm>
#include <set>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/philox.h"

namespace millrace {
namespace {

namespace stdfs = std::filesystem;

constexpr std::size_t kSector = 512;  // the unit that a disk writes whole

std::string text_of(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

}  // namespace

struct PowerLossFs::Node {
  bool is_folder = false;
  Entries now;        // if the node is a folder: its entries, as the program sees them now
  Entries first;      // if the node is a folder: its entries that were safely on disk at the beginning
  std::string bytes;  // if the node is a file: its bytes that were safely on disk at the beginning
};

struct PowerLossFs::Change {
  enum class Kind : std::uint8_t { entry, move, write, truncate, sync_file, sync_folder } kind = Kind::entry;
  // The node that the change concerns: for entry, move and sync_folder the folder, otherwise the file.
  std::size_t node = 0;
  std::string name, to;  // for entry: its name; for move: the old name and the new one
  // For entry: the node that the name stands for after the change, nullopt = no node; for move: the moved node.
  std::optional<std::size_t> target;
  std::string bytes;  // for write: the bytes that are appended
};

class PowerLossFs::File final : public WritableFile {
 public:
  File(PowerLossFs& fs, std::unique_ptr<WritableFile> file, std::optional<std::size_t> node)
      : fs_(fs), file_(std::move(file)), node_(node) {}
  void write(std::span<const std::byte> bytes) override {
    file_->write(bytes);
    if (node_) fs_.note({.kind = Change::Kind::write, .node = *node_, .bytes = text_of(bytes)});
  }
  void sync() override {
    file_->sync();
    if (node_) fs_.note({.kind = Change::Kind::sync_file, .node = *node_});
  }
  void close() override { file_->close(); }

 private:
  PowerLossFs& fs_;
  std::unique_ptr<WritableFile> file_;
  std::optional<std::size_t> node_;
};

PowerLossFs::PowerLossFs(Fs& real, stdfs::path root) : real_(real), root_(std::move(root)) {
  add_node(true, "");
  remember_folder(root_, 0);
}

PowerLossFs::~PowerLossFs() = default;

std::size_t PowerLossFs::add_node(bool is_folder, std::string bytes) {
  nodes_.push_back({.is_folder = is_folder, .now = {}, .first = {}, .bytes = std::move(bytes)});
  return nodes_.size() - 1;
}

void PowerLossFs::remember_folder(const stdfs::path& folder, std::size_t node) {
  for (const std::string& name : real_.list(folder)) {
    const bool is_folder = stdfs::is_directory(folder / name);
    const std::size_t child = add_node(is_folder, is_folder ? std::string() : real_.read_file(folder / name));
    nodes_[node].now[name] = nodes_[node].first[name] = child;
    if (is_folder) remember_folder(folder / name, child);
  }
}

std::optional<std::string> PowerLossFs::below_root(const stdfs::path& path) const {
  const std::string relative = path.lexically_relative(root_).string();
  if (relative.empty() || relative.starts_with("..")) return std::nullopt;
  return relative == "." ? "" : relative;
}

std::size_t PowerLossFs::node_at(const stdfs::path& path) const {
  std::size_t node = 0;
  for (const stdfs::path& part : path.lexically_relative(root_)) {
    if (part != ".") node = nodes_[node].now.at(part.string());
  }
  return node;
}

void PowerLossFs::note(Change change) {
  const std::lock_guard lock(mutex_);
  log_.push_back(std::move(change));
}

std::size_t PowerLossFs::changes() const {
  const std::lock_guard lock(mutex_);
  return log_.size();
}

std::unique_ptr<WritableFile> PowerLossFs::create(const stdfs::path& path) {
  std::unique_ptr<WritableFile> file = real_.create(path);
  if (!below_root(path)) return std::make_unique<File>(*this, std::move(file), std::nullopt);
  const std::lock_guard lock(mutex_);
  const std::size_t folder = node_at(path.parent_path());
  const std::string name = path.filename().string();
  if (const auto found = nodes_[folder].now.find(name); found != nodes_[folder].now.end()) {
    log_.push_back({.kind = Change::Kind::truncate, .node = found->second});
    return std::make_unique<File>(*this, std::move(file), found->second);
  }
  return added(std::move(file), path);
}

// Adds a file that did not exist; the caller holds the mutex.
std::unique_ptr<WritableFile> PowerLossFs::added(std::unique_ptr<WritableFile> file, const stdfs::path& path) {
  const std::size_t folder = node_at(path.parent_path());
  const std::size_t node = add_node(false, "");
  nodes_[folder].now[path.filename().string()] = node;
  log_.push_back({.kind = Change::Kind::entry, .node = folder, .name = path.filename().string(), .target = node});
  return std::make_unique<File>(*this, std::move(file), node);
}

std::unique_ptr<WritableFile> PowerLossFs::create_new(const stdfs::path& path) {
  std::unique_ptr<WritableFile> file = real_.create_new(path);
  if (!below_root(path)) return std::make_unique<File>(*this, std::move(file), std::nullopt);
  const std::lock_guard lock(mutex_);
  return added(std::move(file), path);
}

std::unique_ptr<WritableFile> PowerLossFs::append(const stdfs::path& path) {
  const bool was_there = real_.exists(path);
  std::unique_ptr<WritableFile> file = real_.append(path);
  if (!below_root(path)) return std::make_unique<File>(*this, std::move(file), std::nullopt);
  const std::lock_guard lock(mutex_);
  if (was_there) return std::make_unique<File>(*this, std::move(file), node_at(path));
  return added(std::move(file), path);
}

void PowerLossFs::rename(const stdfs::path& from, const stdfs::path& to) {
  real_.rename(from, to);
  if (!below_root(from)) return;
  MR_CHECK(from.parent_path() == to.parent_path(), "moves between folders are not modelled");
  const std::lock_guard lock(mutex_);
  const std::size_t folder = node_at(from.parent_path());
  const std::string name = from.filename().string();
  const std::string target = to.filename().string();
  const std::size_t node = nodes_[folder].now.at(name);
  nodes_[folder].now.erase(name);
  nodes_[folder].now[target] = node;
  log_.push_back({.kind = Change::Kind::move, .node = folder, .name = name, .to = target, .target = node});
}

// Records a removal as the system makes it: first the contents of a folder, entry by entry, then the folder.
void PowerLossFs::forget(std::size_t folder, const std::string& name) {
  const std::size_t node = nodes_[folder].now.at(name);
  while (!nodes_[node].now.empty()) forget(node, std::string(nodes_[node].now.begin()->first));
  nodes_[folder].now.erase(name);
  log_.push_back({.kind = Change::Kind::entry, .node = folder, .name = name, .target = std::nullopt});
}

void PowerLossFs::remove_all(const stdfs::path& path) {
  const bool was_there = real_.exists(path);
  real_.remove_all(path);
  if (!was_there || !below_root(path)) return;
  const std::lock_guard lock(mutex_);
  forget(node_at(path.parent_path()), path.filename().string());
}

void PowerLossFs::create_directories(const stdfs::path& path) {
  std::vector<stdfs::path> missing;
  for (stdfs::path each = path; !real_.exists(each); each = each.parent_path()) missing.push_back(each);
  real_.create_directories(path);
  const std::lock_guard lock(mutex_);
  for (auto each = missing.rbegin(); each != missing.rend(); ++each) {
    if (!below_root(*each)) continue;
    const std::size_t folder = node_at(each->parent_path());
    const std::size_t node = add_node(true, "");
    nodes_[folder].now[each->filename().string()] = node;
    log_.push_back({.kind = Change::Kind::entry, .node = folder, .name = each->filename().string(), .target = node});
  }
}

void PowerLossFs::sync_directory(const stdfs::path& path) {
  real_.sync_directory(path);
  if (!below_root(path)) return;
  const std::lock_guard lock(mutex_);
  log_.push_back({.kind = Change::Kind::sync_folder, .node = node_at(path)});
}

void PowerLossFs::for_each_state(std::size_t first, unsigned most_open, const std::function<void(const State&)>& visit) const {
  const std::lock_guard lock(mutex_);
  for (std::size_t changes = first; changes <= log_.size(); ++changes) states_after(changes, most_open, visit);
}

void PowerLossFs::apply(std::vector<Entries>& entries, const Change& change) {
  Entries& folder = entries[change.node];
  if (change.kind == Change::Kind::move) {
    folder.erase(change.name);
    folder[change.to] = *change.target;
  } else if (change.target) {
    folder[change.name] = *change.target;
  } else {
    folder.erase(change.name);
  }
}

PowerLossFs::Moment PowerLossFs::moment_after(std::size_t changes) const {
  Moment moment;
  for (const Node& node : nodes_) {
    moment.entries.push_back(node.first);
    moment.safe.push_back(node.bytes);
  }
  moment.written = moment.safe;
  for (std::size_t i = 0; i < changes; ++i) {
    const Change& change = log_[i];
    switch (change.kind) {
      case Change::Kind::entry:
      case Change::Kind::move:
        moment.open.push_back(i);
        break;
      case Change::Kind::write:
        moment.written[change.node] += change.bytes;
        break;
      case Change::Kind::truncate:
        moment.written[change.node].clear();
        break;
      case Change::Kind::sync_file:
        moment.safe[change.node] = moment.written[change.node];
        break;
      case Change::Kind::sync_folder:
        for (const std::size_t each : moment.open) {
          if (log_[each].node == change.node) apply(moment.entries, log_[each]);
        }
        std::erase_if(moment.open, [&](std::size_t each) { return log_[each].node == change.node; });
        break;
    }
  }
  return moment;
}

// Returns the bytes of all files in each of three cases: bytes that are not safe are lost, are kept, or the last write is kept
// in part.
std::vector<std::vector<std::string>> PowerLossFs::contents_of(const Moment& moment, std::size_t changes) const {
  std::vector<std::vector<std::string>> contents = {moment.safe};
  if (moment.written != moment.safe) contents.push_back(moment.written);
  if (changes == 0 || log_[changes - 1].kind != Change::Kind::write) return contents;
  const Change& last = log_[changes - 1];
  const std::size_t before = moment.written[last.node].size() - last.bytes.size();
  for (std::size_t kept = 0; kept < last.bytes.size(); kept += kSector) {
    contents.push_back(moment.written);
    contents.back()[last.node].resize(before + kept);
  }
  return contents;
}

void PowerLossFs::states_after(std::size_t changes, unsigned most_open, const std::function<void(const State&)>& visit) const {
  const Moment moment = moment_after(changes);
  const std::vector<std::vector<std::string>> contents = contents_of(moment, changes);
  constexpr std::size_t kBits = 63;
  const std::uint64_t all = std::uint64_t{1} << std::min(moment.open.size(), kBits);
  const std::uint64_t tries = std::min(all, std::uint64_t{1} << most_open);
  Philox random(changes);
  std::set<std::map<std::string, std::optional<std::string>>> seen;
  for (std::uint64_t i = 0; i < tries; ++i) {
    // If there are too many combinations, the first and the last (nothing and everything kept) are always included.
    const std::uint64_t kept = tries == all || i == 0 ? i : i == 1 ? all - 1 : random.below(all);
    std::vector<Entries> tree = moment.entries;
    for (std::size_t bit = 0; bit < std::min(moment.open.size(), kBits); ++bit) {
      if ((kept >> bit & 1U) != 0) apply(tree, log_[moment.open[bit]]);
    }
    for (const std::vector<std::string>& bytes : contents) {
      State state{.changes = changes, .entries = {}};
      const std::function<void(std::size_t, const std::string&)> list = [&](std::size_t folder, const std::string& prefix) {
        for (const auto& [name, node] : tree[folder]) {
          state.entries[prefix + name] = nodes_[node].is_folder ? std::nullopt : std::optional(bytes[node]);
          if (nodes_[node].is_folder) list(node, prefix + name + "/");
        }
      };
      list(0, "");
      if (seen.insert(state.entries).second) visit(state);
    }
  }
}

void PowerLossFs::State::make(const stdfs::path& folder) const {
  for (const auto& [name, bytes] : entries) {  // in this order a folder comes before its entries
    if (!bytes) {
      stdfs::create_directory(folder / name);
      continue;
    }
    const std::unique_ptr<WritableFile> file = Fs::real().create(folder / name);
    file->write(std::as_bytes(std::span(*bytes)));
    file->close();
  }
}

}  // namespace millrace
