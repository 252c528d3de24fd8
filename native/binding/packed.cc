#include "binding/packed.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <memory>

#include "base/file.h"
#include "base/sha256.h"
#include "binding/inspect.h"
#include "binding/job.h"
#include "binding/values.h"
#include "weights/packed_file.h"

namespace continuo::binding {

using Napi::CallbackInfo;
using Napi::Value;

namespace {

// What a job leaves for its promise.
struct Written {
  uint64_t bytes = 0;
};
struct Intact {
  bool whole = false;
};
struct Hashed {
  std::string hex;
};

// So much of a file is read at a time.
constexpr size_t piece_bytes = size_t{1} << 20;

struct Range {
  size_t file;
  uint64_t offset, bytes;
};

}  // namespace

// packedName(path): { key, seal, head, fingerprint } of a file of packed weights; null where it has no whole head.
Value packed_name(const CallbackInfo& info) {
  const auto env = info.Env();
  const auto name = read_packed_name(info[0].As<Napi::String>());
  if (!name) return env.Null();
  auto out = Napi::Object::New(env);
  out.Set("key", name->key);
  out.Set("seal", name->seal);
  out.Set("head", name->head);
  out.Set("fingerprint", name->fingerprint);
  return out;
}

// packing(engine): { bytes, mapped, note }: of all constants; whether they are mapped from the file that was named; why
// it is not used, empty where it is or none was named.
Value packing(const CallbackInfo& info) {
  const auto model = open_engine(info[0])->model();
  auto out = Napi::Object::New(info.Env());
  out.Set("bytes", static_cast<double>(packed_bytes(model->constants)));
  out.Set("mapped", model->packed_file != nullptr);
  out.Set("note", model->note);
  return out;
}

// keepPacked(engine, path, { key, seal, head, fingerprint }) → Promise<number>: writes the file and gives its bytes; 0
// where it does not: the weights are on a device, or another process is writing them.
Value keep_packed(const CallbackInfo& info) {
  const auto model = open_engine(info[0])->model();
  const auto given = info[2].As<Napi::Object>();
  const auto member = [&](const char* key) { return given.Get(key).As<Napi::String>().Utf8Value(); };
  PackedName name{member("key"), member("seal"), member("head"), member("fingerprint")};
  auto written = std::make_shared<Written>();
  Job job;
  job.body = [model, path = info[1].As<Napi::String>().Utf8Value(), name = std::move(name), written]() -> Status {
    if (!model->device->in_host_memory()) return Done{};
    auto done = write_packed(path, name, model->constants);
    if (!done) return done.error();
    written->bytes = *done;
    return Done{};
  };
  job.value = [written](Napi::Env env) -> Value { return Napi::Number::New(env, static_cast<double>(written->bytes)); };
  return promise_of(info.Env(), std::move(job));
}

// packedIntact(engine) → Promise<boolean>: whether the mapped file still has its checksums; true without one.
Value packed_intact(const CallbackInfo& info) {
  const auto model = open_engine(info[0])->model();
  auto found = std::make_shared<Intact>();
  Job job;
  job.body = [model, found]() -> Status {
    found->whole = !model->packed_file || model->packed_file->intact();
    return Done{};
  };
  job.value = [found](Napi::Env env) -> Value { return Napi::Boolean::New(env, found->whole); };
  return promise_of(info.Env(), std::move(job));
}

// hashFiles(first, paths, ranges) → Promise<string>: the sha256 of a text and the ranges behind it: of each the number
// of its path, offset and bytes.
Value hash_files(const CallbackInfo& info) {
  auto hashed = std::make_shared<Hashed>();
  const auto numbers = info[2].As<Napi::Float64Array>();
  std::vector<Range> ranges;
  for (size_t i = 0; i + 2 < numbers.ElementLength(); i += 3)
    ranges.push_back({static_cast<size_t>(numbers[i]), static_cast<uint64_t>(numbers[i + 1]),
                      static_cast<uint64_t>(numbers[i + 2])});
  Job job;
  job.body = [first = info[0].As<Napi::String>().Utf8Value(), paths = paths_of(info[1]), ranges = std::move(ranges),
              hashed]() -> Status {
    Sha256 hash;
    hash.update(std::as_bytes(std::span(first)));
    std::vector<std::unique_ptr<File>> files(paths.size());
    std::vector<std::byte> piece(piece_bytes);
    for (const auto& range : ranges) {
      auto& file = files.at(range.file);
      if (!file) file = std::make_unique<File>(paths[range.file], O_RDONLY);
      if (!*file) return invalid("Cannot read ", paths[range.file], ": ", std::strerror(file->why()), ".");
      for (uint64_t done = 0; done < range.bytes;) {
        const auto part =
            std::span(piece).first(static_cast<size_t>(std::min<uint64_t>(piece_bytes, range.bytes - done)));
        const int why = read_at(file->fd(), part, range.offset + done);
        if (why == file_ended)
          return invalid(paths[range.file],
                         " became shorter while it was read; open the model again when it is complete.");
        if (why != 0) return invalid("Cannot read ", paths[range.file], ": ", std::strerror(why), ".");
        hash.update(part);
        done += part.size();
      }
    }
    hashed->hex = hash.hex();
    return Done{};
  };
  job.value = [hashed](Napi::Env env) -> Value { return Napi::String::New(env, hashed->hex); };
  return promise_of(info.Env(), std::move(job));
}

}  // namespace continuo::binding
