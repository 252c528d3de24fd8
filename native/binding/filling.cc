#include "binding/filling.h"

#include "binding/values.h"
#include "runtime/state/filling.h"

namespace continuo::binding {

using Napi::CallbackInfo;
using Napi::Value;

namespace {

constexpr napi_type_tag filling_tag{0x636f6e74696e756f, 0x66696c6c696e6701};

struct FillingHandle {
  EngineRef engine;
  std::shared_ptr<Filling> filling;  // null once it gave its context, or was dropped
};
using FillingRef = std::shared_ptr<FillingHandle>;

// What a job leaves for its promise. Types of this file: see bulk.cc.
struct Begun {
  std::shared_ptr<Filling> filling;
};
struct Given {
  std::vector<BlockBytes> blocks;
};
struct Placed {
  std::vector<std::string> hashes;
  std::vector<bool> good;
};

FillingRef open_filling(const Value& value) {
  auto filling = unwrap<FillingRef>(value, filling_tag);
  if (!filling->filling) throw error_value(value.Env(), {Code::misuse, "the filling is over."});
  if (filling->engine->closed()) throw error_value(value.Env(), {Code::misuse, "the model is closed."});
  return filling;
}

size_t index_of(const Value& value) { return value.As<Napi::Number>().Uint32Value(); }

std::vector<Growth> growths_of(const Value& tables, const Value& blocks, const Value& kept) {
  const auto all = tables.As<Napi::Array>(), counts = blocks.As<Napi::Array>(), already = kept.As<Napi::Array>();
  std::vector<Growth> out(all.Length());
  for (uint32_t g = 0; g < out.size(); ++g) {
    const auto own = all.Get(g).As<Napi::Array>();
    for (uint32_t i = 0; i < own.Length(); ++i) out[g].slices.push_back(own.Get(i).As<Napi::Number>().Uint32Value());
    out[g].blocks = index_of(counts.Get(g));
    out[g].kept = index_of(already.Get(g));
  }
  return out;
}

}  // namespace

// fill(engine, hot, tables, blocks, kept, context, held, pulse, origin, chain) → Promise<handle>: `tables`: of each
// growth, the indices of its tables among the persistents; `blocks`: how many blocks it has, of which the context has
// the first `kept`, or `held` where they may sleep, and the others will come. Neither of them: none is kept.
Value fill(const CallbackInfo& info) {
  auto engine = open_engine(info[0]);
  const Head head = head_of(info, 7);
  const auto held = info[6].IsExternal() ? unwrap<HeldBlocks>(info[6], held_blocks_tag) : nullptr;
  const auto given = info[5].IsExternal() ? idle_context(info[5])->context : nullptr;
  const auto model = engine->model();
  if (model->device->lost()) engine->engine().reload();
  auto begun = std::make_shared<Begun>();
  auto hot = std::make_shared<std::span<std::byte>>();
  Job job = job_on(
      engine, given,
      [model, hot, head, begun, given, held, growths = growths_of(info[2], info[3], info[4])]() mutable -> Status {
        auto filling = Filling::begin(model, *hot, std::move(growths), head, given.get(), held.get());
        if (!filling) return filling.error();
        begun->filling = std::move(*filling);
        return Done{};
      });
  *hot = keep(job, info[1]);
  job.value = [engine, begun](Napi::Env env) -> Value {
    return wrap(env, std::make_shared<FillingHandle>(FillingHandle{engine, std::move(begun->filling)}), filling_tag);
  };
  return promise_of(info.Env(), engine, std::move(job));
}

// placeBlocks(filling, growths, blocks, arrays) → Promise<string[]>: the sha256 of each array.
Value place_blocks(const CallbackInfo& info) {
  const auto handle = open_filling(info[0]);
  const auto growths = info[1].As<Napi::Array>(), blocks = info[2].As<Napi::Array>(),
             arrays = info[3].As<Napi::Array>();
  auto given = std::make_shared<Given>();
  auto placed = std::make_shared<Placed>();
  Job job = job_on(handle->engine, nullptr, [filling = handle->filling, given, placed]() -> Status {
    auto hashes = filling->place(given->blocks);
    if (!hashes) return hashes.error();
    placed->hashes = std::move(*hashes);
    return Done{};
  });
  for (uint32_t i = 0; i < arrays.Length(); ++i)
    given->blocks.push_back({{index_of(growths.Get(i)), index_of(blocks.Get(i))}, keep(job, arrays.Get(i))});
  job.value = [placed](Napi::Env env) -> Value {
    auto out = Napi::Array::New(env, placed->hashes.size());
    for (uint32_t i = 0; i < placed->hashes.size(); ++i) out.Set(i, Napi::String::New(env, placed->hashes[i]));
    return out;
  };
  return promise_of(info.Env(), handle->engine, std::move(job));
}

// placeFiles(filling, growth, blocks, paths, hashes) → Promise<boolean[]>: whether each file could be read and has the
// length and the hash of its block.
Value place_files(const CallbackInfo& info) {
  const auto handle = open_filling(info[0]);
  const size_t growth = index_of(info[1]);
  const auto blocks = info[2].As<Napi::Array>(), paths = info[3].As<Napi::Array>(), hashes = info[4].As<Napi::Array>();
  std::vector<BlockFile> files;
  for (uint32_t i = 0; i < blocks.Length(); ++i)
    files.push_back({{growth, index_of(blocks.Get(i))},
                     paths.Get(i).As<Napi::String>().Utf8Value(),
                     hashes.Get(i).As<Napi::String>().Utf8Value()});
  auto placed = std::make_shared<Placed>();
  Job job = job_on(handle->engine, nullptr, [filling = handle->filling, files = std::move(files), placed]() -> Status {
    auto good = filling->read(files);
    if (!good) return good.error();
    placed->good = std::move(*good);
    return Done{};
  });
  job.value = [placed](Napi::Env env) -> Value {
    auto out = Napi::Array::New(env, placed->good.size());
    for (uint32_t i = 0; i < placed->good.size(); ++i) out.Set(i, Napi::Boolean::New(env, placed->good[i]));
    return out;
  };
  return promise_of(info.Env(), handle->engine, std::move(job));
}

// restBlocks(filling, growths, blocks): these blocks stay asleep.
Value rest_blocks(const CallbackInfo& info) {
  const auto handle = open_filling(info[0]);
  const auto growths = info[1].As<Napi::Array>(), blocks = info[2].As<Napi::Array>();
  std::vector<BlockName> names;
  for (uint32_t i = 0; i < blocks.Length(); ++i) names.push_back({index_of(growths.Get(i)), index_of(blocks.Get(i))});
  if (auto done = handle->filling->rest(names); !done) throw error_value(info.Env(), done.error());
  return info.Env().Undefined();
}

// filled(filling, context): gives the context of the filling to the handle; without one, a new handle. Throws what is
// wrong with the blocks; then the handle is as it was.
Value filled(const CallbackInfo& info) {
  const auto env = info.Env();
  const auto handle = open_filling(info[0]);
  const auto given = info[1].IsExternal() ? idle_context(info[1]) : nullptr;
  auto context = handle->filling->finish();
  if (!context) throw error_value(env, context.error());
  handle->filling.reset();
  const auto bytes = static_cast<int64_t>((*context)->bytes());
  Napi::MemoryManagement::AdjustExternalMemory(env, bytes - (given ? given->reported : 0));
  if (!given)
    return wrap(env, std::make_shared<ContextHandle>(ContextHandle{handle->engine, std::move(*context), bytes}),
                context_tag);
  given->context->discount();
  free_beside(env, std::exchange(given->context, std::move(*context)));
  given->reported = bytes;
  return env.Undefined();
}

// dropFilling(filling): its memory goes, once no job uses it. One that is over is dropped already.
Value drop_filling(const CallbackInfo& info) {
  const auto handle = unwrap<FillingRef>(info[0], filling_tag);
  if (handle->filling) free_beside(info.Env(), std::move(handle->filling));
  return info.Env().Undefined();
}

}  // namespace continuo::binding
