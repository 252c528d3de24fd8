// Values of JavaScript as the functions of the addon take them: handles, heads, and jobs on an engine's contexts.
#pragma once

#include <cstdint>
#include <memory>
#include <napi.h>

#include "binding/handles.h"
#include "binding/job.h"

namespace continuo::binding {

using EngineRef = std::shared_ptr<EngineHandle>;
using ContextRef = std::shared_ptr<ContextHandle>;
// Full blocks of a context that may be closed already.
using HeldBlocks = std::shared_ptr<Context::Sleepy>;

inline constexpr napi_type_tag engine_tag{0x636f6e74696e756f, 0x656e67696e650001};
inline constexpr napi_type_tag context_tag{0x636f6e74696e756f, 0x636f6e7465787401};
inline constexpr napi_type_tag executor_tag{0x636f6e74696e756f, 0x6578656375746f01};
inline constexpr napi_type_tag held_blocks_tag{0x636f6e74696e756f, 0x68656c64626c6b01};
inline constexpr napi_type_tag token_bytes_tag{0x636f6e74696e756f, 0x746f6b656e627901};

template <class T> Napi::External<T> wrap(Napi::Env env, T value, const napi_type_tag& tag) {
  auto external = Napi::External<T>::New(env, new T(std::move(value)), [](Napi::Env, T* owned) { delete owned; });
  external.TypeTag(&tag);
  return external;
}

template <class T> T unwrap(const Napi::Value& value, const napi_type_tag& tag) {
  if (!value.IsExternal()) throw error_value(value.Env(), internal("expected a handle."));
  const auto external = value.As<Napi::External<T>>();
  if (!external.CheckTypeTag(&tag)) throw error_value(value.Env(), internal("expected a handle of another type."));
  return *external.Data();
}

inline EngineRef open_engine(const Napi::Value& value) {
  auto engine = unwrap<EngineRef>(value, engine_tag);
  if (engine->closed()) throw error_value(value.Env(), {Code::misuse, "the model is closed."});
  return engine;
}

inline ContextRef open_context(const Napi::Value& value) {
  auto context = unwrap<ContextRef>(value, context_tag);
  if (!context->context) throw error_value(value.Env(), {Code::misuse, "the context is closed."});
  return context;
}

// The context of a handle; throws while a call uses it.
inline ContextRef idle_context(const Napi::Value& value) {
  auto context = open_context(value);
  if (context->context->busy())
    throw error_value(value.Env(), {Code::misuse, "the context is busy; wait for the call that has it."});
  return context;
}

// The context of a handle that no call uses and whose state can be read.
inline ContextRef readable_context(const Napi::Value& value) {
  auto context = idle_context(value);
  if (context->context->broken)
    throw error_value(value.Env(),
                      {Code::misuse, "an earlier call left the context's state unusable; reset or restore it first."});
  return context;
}

inline uint64_t u64_of(const Napi::Value& value) {
  bool lossless = false;
  const uint64_t out = value.As<Napi::BigInt>().Uint64Value(&lossless);
  if (!lossless) throw error_value(value.Env(), invalid("expected a whole number below 2⁶⁴."));
  return out;
}

// The head in three arguments from `at` on: pulse, origin, chain.
inline Head head_of(const Napi::CallbackInfo& info, size_t at) {
  const auto chain = Chain::from_hex(info[at + 2].As<Napi::String>().Utf8Value());
  if (!chain) throw error_value(info.Env(), invalid("a chain is 32 lower-case hex digits."));
  return {u64_of(info[at]), u64_of(info[at + 1]), *chain};
}

// A job that has the context to itself until it settles.
inline Job job_on(const EngineRef& engine, const std::shared_ptr<Context>& context, std::function<Status()> body) {
  Job job;
  if (context) (void)context->claim();
  job.body = std::move(body);
  job.end = [engine, context] {
    engine->forget();
    if (context) context->release();
  };
  return job;
}

// The promise of a job on an engine's context; the engine cannot be closed before it settles.
inline Napi::Value promise_of(Napi::Env env, const EngineRef& engine, Job job) {
  const auto call = engine->begin(env);
  start(env, std::move(job), call->deferred);
  return call->deferred.Promise();
}

// Giving back the memory of a large state takes milliseconds, so a job does it.
template <class T> void free_beside(Napi::Env env, std::shared_ptr<T> large) {
  Job job;
  job.body = [last = std::move(large)]() mutable -> Status {
    last.reset();
    return Done{};
  };
  (void)promise_of(env, std::move(job));
}

inline Napi::Object head_value(Napi::Env env, const Head& head) {
  auto out = Napi::Object::New(env);
  out.Set("pulse", Napi::BigInt::New(env, head.pulse));
  out.Set("origin", Napi::BigInt::New(env, head.origin));
  out.Set("chain", Napi::String::New(env, head.chain.hex()));
  return out;
}

template <class Array, class T> Array array_of(Napi::Env env, const std::vector<T>& values) {
  auto out = Array::New(env, values.size());
  if (!values.empty()) std::memcpy(out.Data(), values.data(), values.size() * sizeof(T));
  return out;
}

}  // namespace continuo::binding
