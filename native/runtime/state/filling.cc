#include "runtime/state/filling.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <utility>

#include "base/file.h"
#include "base/sha256.h"
#include "runtime/state/damage.h"

namespace continuo {

namespace {

// Bytes that are read at a time: those of all lanes stay in a core's cache until they are hashed and checked.
constexpr size_t chunk = size_t{64} << 10;

bool has_bytes(const File& file, size_t bytes) {
  struct stat found{};
  return file && ::fstat(file.fd(), &found) == 0 && S_ISREG(found.st_mode) &&
         static_cast<size_t>(found.st_size) == bytes;
}

// Has the system fetch the file from the disk; a matter of speed alone.
void want(const File& file) {
#ifdef POSIX_FADV_WILLNEED
  (void)::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_WILLNEED);
#endif
}

// At most as many as there are lanes.
std::vector<std::string> hashes_of(std::span<const BlockBytes> blocks) {
  std::array<Sha256, Sha256::lanes> hashes;
  const size_t length = blocks[0].bytes.size();
  const bool together =
      blocks.size() == Sha256::lanes &&
      std::all_of(blocks.begin(), blocks.end(), [&](const BlockBytes& block) { return block.bytes.size() == length; });
  if (together) {
    std::array<std::span<const std::byte>, Sha256::lanes> pieces;
    for (size_t i = 0; i < pieces.size(); ++i) pieces[i] = blocks[i].bytes;
    Sha256::update(hashes, pieces);
  }
  std::vector<std::string> out;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (!together) hashes[i].update(blocks[i].bytes);
    out.push_back(hashes[i].hex());
  }
  return out;
}

}  // namespace

Filling::Filling(std::shared_ptr<Context> context, std::vector<Growth> growths)
    : context_(std::move(context)), growths_(std::move(growths)) {
  for (const auto& [slices, blocks, kept] : growths_) {
    auto& parts = parts_.emplace_back();
    size_t bytes = 0;
    for (const uint32_t i : slices) {
      const auto& slice = context_->model().layout[i];
      parts.push_back({i, slice.outer * slice.block * slice.inner * size_of(slice.type)});
      bytes += parts.back().bytes;
    }
    sizes_.push_back(bytes);
    auto& stages = stages_.emplace_back(blocks, Stage::awaited);
    std::fill_n(stages.begin(), kept, Stage::written);
  }
}

Result<std::shared_ptr<Filling>> Filling::begin(std::shared_ptr<const Model> model, std::span<const std::byte> hot,
                                                std::vector<Growth> growths, const Head& head, Context* from,
                                                const Context::Sleepy* sleepy) {
  std::vector<size_t> behind(model->layout.size(), 0), kept_of(model->layout.size(), 0);
  for (const auto& [slices, blocks, kept] : growths) {
    if (kept > blocks || (kept > 0 && !sleepy && (!from || &from->model() != model.get())))
      return internal("blocks are kept that no context of the model has.");
    for (const uint32_t i : slices) {
      if (i >= behind.size() || !model->layout[i].grows() || behind[i] > 0)
        return internal("slice ", i, " does not grow in blocks, or does so twice.");
      behind[i] = blocks * model->layout[i].block;
      kept_of[i] = kept * model->layout[i].block;
    }
  }
  // A fork holds the blocks that are kept, and has no other use.
  auto context = from ? from->fork() : std::make_shared<Context>(std::move(model));
  if (sleepy) context->adopt(*sleepy);
  if (auto done = context->restore(hot, head, {behind, kept_of}); !done) return done.error();
  return std::shared_ptr<Filling>(new Filling(std::move(context), std::move(growths)));
}

Status Filling::take(const auto& wanted) {
  const std::lock_guard lock(mutex_);
  std::vector<Stage*> taken;
  const auto give_back = [&](Error error) -> Error {
    for (Stage* stage : taken) *stage = Stage::awaited;
    return error;
  };
  for (const auto& each : wanted) {
    const auto [growth, block] = each.name;
    if (growth >= stages_.size() || block >= stages_[growth].size())
      return give_back(internal("the state has no block ", block, " of growth ", growth, "."));
    Stage& stage = stages_[growth][block];
    if (stage != Stage::awaited)
      return give_back(internal("block ", block, " of growth ", growth, " is there already."));
    stage = Stage::busy;
    taken.push_back(&stage);
  }
  return Done{};
}

void Filling::leave(BlockName name, Stage stage, std::optional<Error> fault) {
  const std::lock_guard lock(mutex_);
  stages_[name.growth][name.block] = stage;
  if (!fault_) fault_ = std::move(fault);
}

std::optional<Error> Filling::fault_in(const Part& part, size_t block, size_t from,
                                       std::span<const std::byte> bytes) const {
  const auto& s = slice(part);
  const size_t n = bytes.size() / size_of(s.type), bad = first_impossible(bytes.data(), s.type, n);
  if (bad == n) return std::nullopt;
  // From an element of [outer, block, inner] to one of [outer, positions, inner].
  const size_t at = from / size_of(s.type) + bad, rows = at / s.inner;
  const auto positions = static_cast<size_t>(context_->counter(s.counter));
  const size_t position = block * s.block + rows % s.block;
  const size_t index = (rows / s.block * positions + position) * s.inner + at % s.inner;
  return damaged(table(part), bytes.data(), s.type, bad, index);
}

void Filling::write(const Part& part, size_t block, std::span<const std::byte> bytes) {
  if (slice(part).may_sleep)
    context_->blocks(slice(part).name).place(block, bytes);
  else
    context_->model().device_of(slice(part)).upload(place_of(part, block), bytes.data(), bytes.size());
}

std::optional<Error> Filling::put(const BlockBytes& block) {
  const auto [growth, at] = block.name;
  if (block.bytes.size() != sizes_[growth])
    return invalid("the snapshot has a block of ", block.bytes.size(), " bytes; its tables have ", sizes_[growth], ".");
  std::optional<Error> fault;
  size_t from = 0;
  for (const auto& part : parts_[growth]) {
    const auto own = block.bytes.subspan(from, part.bytes);
    if (!fault) fault = fault_in(part, at, 0, own);
    write(part, at, own);
    from += part.bytes;
  }
  return fault;
}

Result<std::vector<std::string>> Filling::place(std::span<const BlockBytes> blocks) {
  std::vector<std::string> hashes;
  if (blocks.empty()) return hashes;
  if (auto taken = take(blocks); !taken) return taken.error();
  size_t done = 0;
  try {
    const Pinned pinned(device(), *context_);
    while (done < blocks.size()) {
      const auto group = blocks.subspan(done, std::min(Sha256::lanes, blocks.size() - done));
      for (auto& hash : hashes_of(group)) hashes.push_back(std::move(hash));
      for (const auto& block : group) {
        leave(block.name, Stage::written, put(block));
        ++done;
      }
    }
  } catch (...) {
    for (; done < blocks.size(); ++done) leave(blocks[done].name, Stage::awaited);
    throw;
  }
  return hashes;
}

// The files that are read side by side.
class Filling::Reading {
 public:
  Reading(Filling& filling, std::span<const BlockFile> files) : filling_(filling), wanted_(files) {
    for (const auto& file : files) {
      files_.emplace_back(file.path, O_RDONLY);
      good_.push_back(has_bytes(files_.back(), filling.sizes_[file.name.growth]));
      if (good_.back()) want(files_.back());
    }
    faults_.resize(files.size());
  }

  std::vector<bool> read() {
    std::array<Sha256, Sha256::lanes> hashes;
    const size_t growth = wanted_[0].name.growth;
    const auto sleeps = [&](const Part& part) { return filling_.slice(part).may_sleep; };
    const auto& parts = filling_.parts_[growth];
    const bool direct = filling_.device().in_host_memory() && std::none_of(parts.begin(), parts.end(), sleeps);
    std::vector<std::byte> staging(direct ? 0 : filling_.sizes_[growth] * wanted_.size());
    size_t at = 0;
    for (const auto& part : filling_.parts_[growth]) {
      for (size_t from = 0; from < part.bytes; from += chunk) {
        const size_t bytes = std::min(chunk, part.bytes - from);
        std::array<std::span<const std::byte>, Sha256::lanes> pieces;
        for (size_t i = 0; i < wanted_.size(); ++i) {
          auto* begin = direct ? filling_.place_of(part, wanted_[i].name.block)
                               : staging.data() + i * filling_.sizes_[growth] + (at - from);
          pieces[i] = fetch(i, part, from, {begin + from, bytes}, at);
        }
        // A lane without a file hashes what another one has.
        for (size_t i = wanted_.size(); i < pieces.size(); ++i) pieces[i] = pieces[0];
        Sha256::update(hashes, pieces);
        at += bytes;
      }
    }
    for (size_t i = 0; i < wanted_.size(); ++i) {
      good_[i] = good_[i] && hashes[i].hex() == wanted_[i].sha256;
      if (good_[i] && !direct) upload(wanted_[i], staging.data() + i * filling_.sizes_[growth]);
    }
    return good_;
  }

  std::optional<Error> fault(size_t i) const { return good_[i] ? faults_[i] : std::nullopt; }

 private:
  std::span<const std::byte> fetch(size_t i, const Part& part, size_t from, std::span<std::byte> to, size_t at) {
    if (good_[i] && read_at(files_[i].fd(), to, at) == 0) {
      if (!faults_[i]) faults_[i] = filling_.fault_in(part, wanted_[i].name.block, from, to);
    } else {
      good_[i] = false;
      std::fill(to.begin(), to.end(), std::byte{0});
    }
    return to;
  }

  void upload(const BlockFile& file, const std::byte* from) {
    for (const auto& part : filling_.parts_[file.name.growth]) {
      filling_.write(part, file.name.block, {from, part.bytes});
      from += part.bytes;
    }
  }

  Filling& filling_;
  std::span<const BlockFile> wanted_;
  std::vector<File> files_;
  std::vector<bool> good_;
  std::vector<std::optional<Error>> faults_;
};

Result<std::vector<bool>> Filling::read(std::span<const BlockFile> files) {
  std::vector<bool> good(files.size(), false);
  if (files.empty()) return good;
  const auto is_other = [&](const BlockFile& file) { return file.name.growth != files[0].name.growth; };
  if (std::any_of(files.begin(), files.end(), is_other)) return internal("blocks of several growths in one call.");
  if (auto taken = take(files); !taken) return taken.error();
  size_t done = 0;
  try {
    const Pinned pinned(device(), *context_);
    const auto opened = [&](size_t from) {
      const auto group = files.subspan(from, std::min(Sha256::lanes, files.size() - from));
      return std::make_unique<Reading>(*this, group);
    };
    auto next = opened(0);
    while (done < files.size()) {
      const auto now = std::move(next);
      const size_t count = std::min(Sha256::lanes, files.size() - done);
      // The disk works for the next group meanwhile.
      if (done + count < files.size()) next = opened(done + count);
      const auto found = now->read();
      for (size_t i = 0; i < count; ++i, ++done) {
        good[done] = found[i];
        leave(files[done].name, found[i] ? Stage::written : Stage::awaited, now->fault(i));
      }
    }
  } catch (...) {
    for (; done < files.size(); ++done) leave(files[done].name, Stage::awaited);
    throw;
  }
  return good;
}

Status Filling::rest(std::span<const BlockName> blocks) {
  for (const auto& [growth, block] : blocks) {
    const bool sleeps = growth < parts_.size() && std::all_of(
                                                      parts_[growth].begin(), parts_[growth].end(),
                                                      [&](const Part& part) { return slice(part).may_sleep; });
    if (!sleeps) return internal("block ", block, " of growth ", growth, " cannot sleep.");
  }
  const std::lock_guard lock(mutex_);
  for (const auto& [growth, block] : blocks) {
    if (block >= stages_[growth].size() || stages_[growth][block] != Stage::awaited)
      return internal("block ", block, " of growth ", growth, " is not awaited.");
    stages_[growth][block] = Stage::written;
  }
  return Done{};
}

Result<std::shared_ptr<Context>> Filling::finish() {
  const std::lock_guard lock(mutex_);
  if (fault_) return *fault_;
  for (const auto& stages : stages_) {
    if (std::any_of(stages.begin(), stages.end(), [](Stage stage) { return stage != Stage::written; }))
      return internal("a context is to be used before all of its blocks are there.");
  }
  return std::move(context_);
}

}  // namespace continuo
