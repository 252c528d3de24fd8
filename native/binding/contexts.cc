// Functions of the addon over contexts.
#include "binding/contexts.h"

#include "binding/blocks.h"
#include "binding/bulk.h"
#include "binding/filling.h"
#include "binding/positions.h"
#include "binding/values.h"

namespace continuo::binding {

using Napi::CallbackInfo;
using Napi::Value;

namespace {

// Replaces a context whose device was lost by a new one on the new device. Where there is no new device yet, asks the
// engine for one; making the new context then throws the error of the lost device.
void rebind(const ContextRef& context) {
  if (!context->context->model().device->lost()) return;
  context->engine->engine().reload();
  auto another = std::make_shared<Context>(context->engine->model());
  another->head = context->context->head;
  context->context = std::move(another);
}

}  // namespace

// createContext(engine)
Value create_context(const CallbackInfo& info) {
  auto engine = open_engine(info[0]);
  if (engine->model()->device->lost()) engine->engine().reload();
  auto context = std::make_shared<Context>(engine->model());
  const auto bytes = static_cast<int64_t>(context->bytes());
  Napi::MemoryManagement::AdjustExternalMemory(info.Env(), bytes);
  return wrap(info.Env(), std::make_shared<ContextHandle>(ContextHandle{engine, std::move(context), bytes}),
              context_tag);
}

// forkContext(context)
Value fork_context(const CallbackInfo& info) {
  const auto parent = readable_context(info[0]);
  auto context = parent->context->fork();
  const auto bytes = static_cast<int64_t>(context->bytes());
  Napi::MemoryManagement::AdjustExternalMemory(info.Env(), bytes);
  return wrap(info.Env(), std::make_shared<ContextHandle>(ContextHandle{parent->engine, std::move(context), bytes}),
              context_tag);
}

Value close_context(const CallbackInfo& info) {
  auto context = idle_context(info[0]);
  Napi::MemoryManagement::AdjustExternalMemory(info.Env(), -context->reported);
  // Who asks for the size of a fork now must not wait for the job.
  context->context->discount();
  free_beside(info.Env(), std::move(context->context));
  return info.Env().Undefined();
}

// head(context): valid also right after a call that failed.
Value head(const CallbackInfo& info) { return head_value(info.Env(), idle_context(info[0])->context->head); }

// stateBytes(context): bytes that its persistents take now.
Value state_bytes(const CallbackInfo& info) {
  return Napi::Number::New(info.Env(), static_cast<double>(idle_context(info[0])->context->bytes()));
}

// gates(context): [{ table, at, theta, eta, alpha, count }]: sums of the gates of each level of a memory (GateSums).
Value gates(const CallbackInfo& info) {
  const auto context = idle_context(info[0])->context;
  auto out = Napi::Array::New(info.Env());
  uint32_t i = 0;
  for (const auto& [key, sums] : context->gates) {
    auto entry = Napi::Object::New(info.Env());
    entry.Set("table", context->model().graph.declarations[key.first].name);
    entry.Set("at", static_cast<double>(key.second));
    entry.Set("theta", sums.theta);
    entry.Set("eta", sums.eta);
    entry.Set("alpha", sums.alpha);
    entry.Set("count", static_cast<double>(sums.count));
    out.Set(i++, entry);
  }
  return out;
}

// stopAdapting(context): ends the adaptation that has the context between two evaluations; where none does, nothing.
Value stop_adapting(const CallbackInfo& info) {
  if (const auto& adapting = open_context(info[0])->adapting) adapting->store(true);
  return info.Env().Undefined();
}

Value reset(const CallbackInfo& info) {
  const auto context = idle_context(info[0]);
  rebind(context);
  context->context->reset();
  return info.Env().Undefined();
}

Value serialize(const CallbackInfo& info) {
  auto context = readable_context(info[0]);
  auto out = Napi::Uint8Array::New(info.Env(), context->context->serialized_bytes());
  auto done = context->context->serialize({reinterpret_cast<std::byte*>(out.Data()), out.ByteLength()});
  if (!done) throw error_value(info.Env(), done.error());
  return out;
}

// counters(context): the value of each persistent that is a counter, in order of declaration; of the others 0.
Value counters(const CallbackInfo& info) {
  const auto context = idle_context(info[0]);
  const auto& model = context->context->model();
  auto out = Napi::Array::New(info.Env(), model.layout.size());
  for (uint32_t i = 0; i < model.layout.size(); ++i) {
    const Name name = model.layout[i].name;
    const bool counter = model.graph.declarations[name].counter;
    out.Set(i, Napi::Number::New(info.Env(), counter ? static_cast<double>(context->context->counter(name)) : 0));
  }
  return out;
}

// partBytes(context, from, to, rest): bytes of a part of the state.
Value part_bytes(const CallbackInfo& info) {
  const auto context = readable_context(info[0])->context;
  const auto rows = positions_of(*context, info[1], info[2]);
  const auto bytes = context->part_bytes(rows, info[3].As<Napi::Boolean>());
  return Napi::Number::New(info.Env(), static_cast<double>(bytes));
}

// capture(context, from, to, rest, out) → Promise<void>: copies a part of the state; `out` has its bytes.
Value capture(const CallbackInfo& info) {
  auto handle = readable_context(info[0]);
  const auto context = handle->context;
  auto rows = positions_of(*context, info[1], info[2]);
  const bool rest = info[3].As<Napi::Boolean>();
  if (info[4].As<Napi::Uint8Array>().ByteLength() != context->part_bytes(rows, rest))
    throw error_value(info.Env(), internal("the array does not have the length of the part."));
  auto to = std::make_shared<std::span<std::byte>>();
  Job job = job_on(handle->engine, context, [context, rows = std::move(rows), rest, to]() -> Status {
    return context->serialize_part(rows, rest, *to);
  });
  *to = keep(job, info[4]);
  return promise_of(info.Env(), handle->engine, std::move(job));
}

// restore(context, state, pulse, origin, chain)
Value restore(const CallbackInfo& info) {
  auto context = idle_context(info[0]);
  const auto state = info[1].As<Napi::Uint8Array>();
  const Head to = head_of(info, 2);
  rebind(context);
  auto done = context->context->restore({reinterpret_cast<const std::byte*>(state.Data()), state.ByteLength()}, to);
  if (!done) throw error_value(info.Env(), done.error());
  return info.Env().Undefined();
}

// load(engine, context, state, pulse, origin, chain) → Promise<handle>: state and head of the context; without a
// context of a new one. Without a state it gets the first one.
Value load(const CallbackInfo& info) {
  const auto env = info.Env();
  auto engine = open_engine(info[0]);
  const auto handle = info[1].IsExternal() ? idle_context(info[1]) : nullptr;
  const Head to = head_of(info, 3);
  const auto model = engine->model();
  if (model->device->lost()) engine->engine().reload();
  const auto given = handle ? handle->context : nullptr;
  auto loaded = std::make_shared<std::shared_ptr<Context>>();
  auto state = std::make_shared<std::span<std::byte>>();
  const bool whole = info[2].IsTypedArray();
  Job job = job_on(engine, given, [model, given, loaded, state, whole, to]() -> Status {
    // A context whose device was lost gets a successor on the new device.
    const bool lives = given && !given->model().device->lost();
    auto context = lives ? given : std::make_shared<Context>(model);
    if (whole) {
      if (auto done = context->restore(*state, to); !done) return done;
    } else {
      context->reset();
      context->head = to;
    }
    *loaded = std::move(context);
    return Done{};
  });
  if (whole) *state = keep(job, info[2]);
  job.value = [engine, handle, loaded](Napi::Env settled) -> Value {
    if (handle) {
      handle->context = std::move(*loaded);
      return settled.Undefined();
    }
    const auto bytes = static_cast<int64_t>((*loaded)->bytes());
    Napi::MemoryManagement::AdjustExternalMemory(settled, bytes);
    return wrap(settled, std::make_shared<ContextHandle>(ContextHandle{engine, std::move(*loaded), bytes}),
                context_tag);
  };
  return promise_of(env, engine, std::move(job));
}

// restart(context) → Promise<void>: as reset.
Value restart(const CallbackInfo& info) {
  auto handle = idle_context(info[0]);
  rebind(handle);
  const auto context = handle->context;
  return promise_of(info.Env(), handle->engine, job_on(handle->engine, context, [context]() -> Status {
                      context->reset();
                      return Done{};
                    }));
}

}  // namespace continuo::binding
