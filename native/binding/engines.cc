#include "binding/engines.h"

#include "backends/cpu/device.h"
#include "backends/cuda/cuda.h"
#include "binding/inspect.h"
#include "binding/items.h"
#include "binding/packed.h"
#include "binding/positions.h"

namespace continuo::binding {

using Napi::CallbackInfo;
using Napi::Value;

namespace {

// The member `experts` of the options: where the model's experts lie, and how they are read. Null: it has none.
Engine::OpenExperts experts_of(const Value& value) {
  const auto found = value.As<Napi::Object>().Get("experts");
  if (!found.IsObject()) return nullptr;
  const auto object = found.As<Napi::Object>();
  experts::CacheOptions options;
  options.bytes = static_cast<uint64_t>(object.Get("bytes").As<Napi::Number>().Int64Value());
  if (const auto bytes = object.Get("deviceBytes"); bytes.IsNumber())
    options.device_bytes = static_cast<uint64_t>(bytes.As<Napi::Number>().Int64Value());
  options.digest = object.Get("digest").As<Napi::String>();
  options.io =
      object.Get("io").As<Napi::String>().Utf8Value() == "buffered" ? experts::Io::buffered : experts::Io::direct;
  const auto policy = object.Get("policy").As<Napi::String>().Utf8Value();
  options.policy = policy == "lfu"   ? experts::Policy::lfu
                   : policy == "lru" ? experts::Policy::lru
                                     : experts::Policy::score;
  const auto backend = object.Get("backend").As<Napi::String>().Utf8Value();
  options.backend = backend == "io_uring"  ? experts::Backend::io_uring
                    : backend == "threads" ? experts::Backend::threads
                    : backend == "mapped"  ? experts::Backend::mapped
                                           : experts::Backend::automatic;
  options.depth = object.Get("depth").As<Napi::Number>().Uint32Value();
  options.deltas = object.Get("deltas").ToBoolean();
  options.frequencies = object.Get("frequencies").ToBoolean();
  std::vector<uint32_t> layers;
  const auto list = object.Get("layers").As<Napi::Array>();
  for (uint32_t i = 0; i < list.Length(); ++i) layers.push_back(list.Get(i).As<Napi::Number>().Uint32Value());
  return [folder = object.Get("folder").As<Napi::String>().Utf8Value(), layers, options] {
    return experts::ExpertCache::open(folder, layers, options);
  };
}

}  // namespace

ExecutorOptions options_of(const Value& value) {
  const auto object = value.As<Napi::Object>();
  ExecutorOptions out{object.Get("memoryReuse").ToBoolean(), object.Get("trace").ToBoolean(),
                      object.Get("watch").ToBoolean()};
  if (const auto vocabulary = object.Get("vocabulary"); !vocabulary.IsUndefined())
    out.vocabulary = unwrap<std::shared_ptr<const TokenBytes>>(vocabulary, token_bytes_tag);
  // [declaration, member, …]
  if (const auto wanted = object.Get("moments"); wanted.IsTypedArray()) {
    const auto ids = wanted.As<Napi::Uint32Array>();
    out.moments = std::make_shared<Moments>();
    for (size_t i = 0; i + 1 < ids.ElementLength(); i += 2) out.moments->wanted.push_back({ids[i], ids[i + 1]});
  }
  return out;
}

Value promised(Napi::Env env, const EngineHandle::Call& call, const Status& accepted) {
  if (!accepted) {
    call.handle->forget();
    call.deferred.Reject(error_value(env, accepted.error()).Value());
  }
  return call.deferred.Promise();
}

// open(graphJson, paths, threads, options, packed, device, stepTarget) → Promise<handle>. `packed`: { path, key, seal }
// of a file of packed weights, or null.
Value open(const CallbackInfo& info) {
  const auto env = info.Env();
  const Engine::OpenDevice open_device = info[5].As<Napi::String>().Utf8Value() == "cuda" ? open_cuda : open_cpu;
  auto engine =
      EngineHandle::make(env, info[2].As<Napi::Number>().Uint32Value(), info[6].As<Napi::Number>().DoubleValue());
  PackCache cache;
  if (info[4].IsObject()) {
    const auto packed = info[4].As<Napi::Object>();
    const auto member = [&](const char* key) { return packed.Get(key).As<Napi::String>().Utf8Value(); };
    cache = {member("path"), member("key"), member("seal")};
  }
  auto call = engine->begin(env);
  engine->engine().load(
      info[0].As<Napi::String>(), paths_of(info[1]), std::move(cache), options_of(info[3]),
      [call](Result<std::shared_ptr<const Model>> loaded) mutable {
        if (!loaded) return EngineHandle::complete(std::move(call), loaded.error(), {});
        EngineHandle::complete(std::move(call), std::nullopt, [](Napi::Env settled, const EngineRef& handle) -> Value {
          return wrap(settled, EngineRef(handle), engine_tag);
        });
      },
      open_device, experts_of(info[3]));
  return call->deferred.Promise();
}

// positions(engine): how many tokens a context can take; null without a bound.
Value positions(const CallbackInfo& info) {
  const auto most = open_engine(info[0])->model()->positions();
  return most ? Value(Napi::Number::New(info.Env(), static_cast<double>(*most))) : Value(info.Env().Null());
}

// unavailableReason(engine): why the model could not be loaded again after its device was lost; else empty.
Value unavailable_reason(const CallbackInfo& info) {
  return Napi::String::New(info.Env(), open_engine(info[0])->engine().unavailable_reason());
}

// tokenBytes(bytes, ends): the bytes that each token of a vocabulary stands for, and where those of each token end.
Value token_bytes(const CallbackInfo& info) {
  const auto bytes = info[0].As<Napi::Uint8Array>();
  const auto ends = info[1].As<Napi::Uint32Array>();
  auto out = std::make_shared<TokenBytes>();
  out->bytes.assign(reinterpret_cast<const char*>(bytes.Data()), bytes.ByteLength());
  out->ends.assign(ends.Data(), ends.Data() + ends.ElementLength());
  for (size_t i = 0; i < out->ends.size(); ++i) {
    if (out->ends[i] > out->bytes.size() || (i > 0 && out->ends[i] < out->ends[i - 1]))
      throw error_value(info.Env(), internal("the table of token bytes is not in order."));
  }
  return wrap(info.Env(), std::shared_ptr<const TokenBytes>(std::move(out)), token_bytes_tag);
}

// submit(engine, item) → Promise<result>
Value submit(const CallbackInfo& info) {
  const auto env = info.Env();
  auto engine = open_engine(info[0]);
  auto item = item_of(engine, info[1].As<Napi::Object>());
  auto call = engine->begin(env);
  auto accepted = engine->engine().submit(std::move(item), [call](ItemResult done) mutable {
    if (done.error) return EngineHandle::complete(std::move(call), std::move(done.error), {});
    auto result = std::make_shared<ItemResult>(std::move(done));
    EngineHandle::complete(std::move(call), std::nullopt, [result](Napi::Env settled, const EngineRef&) -> Value {
      return result_value(settled, *result);
    });
  });
  return promised(env, *call, accepted);
}

// speculate(engine, most, adapt)
Value speculate(const CallbackInfo& info) {
  open_engine(info[0])->engine().speculate({info[1].As<Napi::Number>().Uint32Value(), info[2].ToBoolean()});
  return info.Env().Undefined();
}

// draft(engine, graphJson, paths, bytes) → Promise<void>: loads a model that guesses tokens.
Value draft(const CallbackInfo& info) {
  const auto env = info.Env();
  auto engine = open_engine(info[0]);
  auto call = engine->begin(env);
  engine->engine().load_draft(
      info[1].As<Napi::String>(), paths_of(info[2]), static_cast<size_t>(info[3].As<Napi::Number>().Int64Value()),
      [call](Status loaded) mutable {
        if (!loaded) return EngineHandle::complete(std::move(call), loaded.error(), {});
        EngineHandle::complete(std::move(call), std::nullopt,
                               [](Napi::Env settled, const EngineRef&) -> Value { return settled.Undefined(); });
      },
      open_cpu);
  return call->deferred.Promise();
}

// stats(engine): its Counts.
Value stats(const CallbackInfo& info) {
  const auto engine = open_engine(info[0]);
  const auto& counts = engine->engine().counts();
  auto out = Napi::Object::New(info.Env());
  out.Set("steps", static_cast<double>(counts.steps));
  out.Set("tokens", static_cast<double>(counts.tokens));
  out.Set("items", static_cast<double>(counts.items));
  out.Set("drafted", static_cast<double>(counts.drafted));
  out.Set("kept", static_cast<double>(counts.kept));
  out.Set("blockWaits", static_cast<double>(counts.block_waits));
  out.Set("blockWaitSeconds", static_cast<double>(counts.block_wait_ns) * 1e-9);
  return out;
}

// logits(engine, context) → Promise<Float32Array>
Value logits(const CallbackInfo& info) {
  const auto env = info.Env();
  auto engine = open_engine(info[0]);
  auto context = open_context(info[1]);
  if (context->engine != engine) throw error_value(env, {Code::misuse, "the context belongs to another model."});
  auto call = engine->begin(env);
  auto accepted = engine->engine().logits(context->context, [call](Result<std::vector<float>> done) mutable {
    if (!done) return EngineHandle::complete(std::move(call), done.error(), {});
    auto values = std::make_shared<std::vector<float>>(std::move(*done));
    EngineHandle::complete(std::move(call), std::nullopt, [values](Napi::Env settled, const EngineRef&) -> Value {
      return array_of<Napi::Float32Array>(settled, *values);
    });
  });
  return promised(env, *call, accepted);
}

// moments(engine, declaration, member): Σ x xᵀ [inputs, inputs] of the rows that a member of a constant was multiplied
// with; null where it was not asked for, or nothing multiplies with it.
Value moments(const CallbackInfo& info) {
  const auto env = info.Env();
  const auto engine = open_engine(info[0]);
  if (engine->pending() > 0)
    throw error_value(env, {Code::misuse, "the model has calls in flight; await them before asking for moments."});
  const auto& all = engine->engine().options().moments;
  const uint32_t id = engine->model()->constant_index.of(info[1].As<Napi::Number>().Uint32Value(),
                                                         info[2].As<Napi::Number>().Uint32Value());
  if (!all || id >= all->sum_of.size() || all->sum_of[id] == no_name) return env.Null();
  auto& sum = all->sums[all->sum_of[id]];
  all->flush(sum);
  auto out = Napi::Float32Array::New(env, sum.sum.size());
  std::copy(sum.sum.begin(), sum.sum.end(), out.Data());
  return out;
}

Value close_engine(const CallbackInfo& info) {
  auto engine = open_engine(info[0]);
  if (engine->pending() > 0) {
    throw error_value(info.Env(), {Code::misuse, text("the model has ", engine->pending(),
                                                      " calls in flight; await them before closing it.")});
  }
  engine->close();
  return info.Env().Undefined();
}

}  // namespace continuo::binding
