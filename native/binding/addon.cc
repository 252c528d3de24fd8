// The Node addon: plain functions over handles. src/engine/ validates arguments, fills in defaults and writes messages;
// the checks here only keep a wrong call from corrupting memory.
#include "backends/cpu/device.h"
#include "backends/cuda/cuda.h"
#include "binding/blocks.h"
#include "binding/bulk.h"
#include "binding/experts.h"
#include "binding/filling.h"
#include "binding/inspect.h"
#include "binding/items.h"
#include "binding/packed.h"
#include "binding/positions.h"
#include "binding/values.h"
#include "weights/widen.h"

namespace continuo::binding {

namespace {

using Napi::CallbackInfo;
using Napi::Value;

ExecutorOptions options_of(const Value& value) {
  const auto object = value.As<Napi::Object>();
  ExecutorOptions out{object.Get("memoryReuse").ToBoolean(), object.Get("trace").ToBoolean(),
                      object.Get("watch").ToBoolean()};
  // [declaration, member, …]
  if (const auto wanted = object.Get("moments"); wanted.IsTypedArray()) {
    const auto ids = wanted.As<Napi::Uint32Array>();
    out.moments = std::make_shared<Moments>();
    for (size_t i = 0; i + 1 < ids.ElementLength(); i += 2) out.moments->wanted.push_back({ids[i], ids[i + 1]});
  }
  return out;
}

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

// Replaces a context whose device was lost by a new one on the new device. Where there is no new device yet, asks the
// engine for one; making the new context then throws the error of the lost device.
void rebind(const ContextRef& context) {
  if (!context->context->model().device->lost()) return;
  context->engine->engine().reload();
  auto another = std::make_shared<Context>(context->engine->model());
  another->head = context->context->head;
  context->context = std::move(another);
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

// The promise of a call; rejected at once where the engine refused the call.
Value promised(Napi::Env env, const EngineHandle::Call& call, const Status& accepted) {
  if (!accepted) {
    call.handle->forget();
    call.deferred.Reject(error_value(env, accepted.error()).Value());
  }
  return call.deferred.Promise();
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

// createExecutor(context, options)
Value create_executor(const CallbackInfo& info) {
  auto context = idle_context(info[0]);
  auto host = context->engine->engine().host_executor(context->context, options_of(info[1]));
  return wrap(info.Env(), std::make_shared<ExecutorHandle>(ExecutorHandle{context->engine, std::move(host)}),
              executor_tag);
}

// The host executor of a handle; throws while a call uses its context.
std::shared_ptr<ExecutorHandle> idle_executor(const Value& value) {
  auto executor = unwrap<std::shared_ptr<ExecutorHandle>>(value, executor_tag);
  if (executor->engine->closed()) throw error_value(value.Env(), {Code::misuse, "the model is closed."});
  if (executor->host->context->busy())
    throw error_value(value.Env(), {Code::misuse, "the executor is busy; wait for the call that has it."});
  return executor;
}

// step(executor, block, rows, inputs) → Promise<void>
Value step(const CallbackInfo& info) {
  const auto env = info.Env();
  auto executor = idle_executor(info[0]);
  StepInputs inputs{info[1].As<Napi::Number>().Uint32Value(), info[2].As<Napi::Number>().Uint32Value(), {}};
  const auto& program = executor->engine->model()->programs[inputs.block];
  const auto list = info[3].As<Napi::Array>();
  for (uint32_t i = 0; i < list.Length() && i < program.inputs.size(); ++i) {
    const auto bytes = list.Get(i).As<Napi::Uint8Array>();
    // src/engine/executor.ts has checked the lengths. The bound only protects memory.
    const size_t size = std::min<size_t>(bytes.ByteLength(), inputs.rows * program.values[program.inputs[i]].bytes);
    const auto* data = reinterpret_cast<const std::byte*>(bytes.Data());
    inputs.inputs.emplace_back(data, data + size);
  }
  auto engine = executor->engine;
  auto call = engine->begin(env);
  auto accepted = engine->engine().step(executor->host, std::move(inputs), [call](Status done) mutable {
    if (!done) return EngineHandle::complete(std::move(call), done.error(), {});
    EngineHandle::complete(std::move(call), std::nullopt,
                           [](Napi::Env settled, const EngineRef&) -> Value { return settled.Undefined(); });
  });
  return promised(env, *call, accepted);
}

// fetch(executor, block, rows, declaration): the rows of a volatile after the last step; null where the plan let other
// values overwrite it.
Value fetch(const CallbackInfo& info) {
  const auto env = info.Env();
  auto executor = idle_executor(info[0]);
  const size_t block = info[1].As<Napi::Number>().Uint32Value();
  const size_t rows = info[2].As<Napi::Number>().Uint32Value();
  const auto& program = executor->engine->model()->programs[block];
  const uint32_t value = program.last_value[info[3].As<Napi::Number>().Uint32Value()];
  if (value == no_name) throw error_value(env, invalid("the block writes no such value."));
  auto& runner = *executor->host->executor;
  const bool kept = !runner.options().reuse || program.lifetimes[value].last == program.code.size();
  if (!kept) return env.Null();
  auto out = Napi::Uint8Array::New(env, rows * program.values[value].bytes);
  const InUse in_use(runner.model().device);
  std::memcpy(out.Data(), runner.fetch(block, value, rows), out.ByteLength());
  return out;
}

// fetchConstant(executor, declaration, member): the numbers of a constant, or of a family's member, counted from 0, in
// f32.
Value fetch_constant(const CallbackInfo& info) {
  const auto env = info.Env();
  const auto executor = idle_executor(info[0]);
  const auto& model = executor->host->executor->model();
  const auto declaration = info[1].As<Napi::Number>().Uint32Value(), member = info[2].As<Napi::Number>().Uint32Value();
  const uint32_t id = model.constant_index.of(declaration, member);
  if (id >= model.constants.size() || model.constant_index.members()[id].declaration != declaration)
    throw error_value(env, internal("there is no such member of a constant."));
  const auto& constant = model.constants[id];
  const InUse in_use(model.device);
  std::vector<std::byte> bytes(constant.bytes.size());
  const Piece all{constant.bytes.data(), constant.bytes.size()};
  model.device->download(bytes.data(), {&all, 1});
  auto out = Napi::Float32Array::New(env, numbers_of(constant));
  widen(constant, bytes, out.Data());
  return out;
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

// trace(executor): a TraceEntry for each node of the last step.
Value trace(const CallbackInfo& info) {
  const auto env = info.Env();
  auto executor = idle_executor(info[0]);
  const auto& entries = executor->host->executor->trace();
  const auto& declarations = executor->engine->model()->graph.declarations;
  auto out = Napi::Array::New(env, entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto& from = entries[i];
    auto entry = Napi::Object::New(env);
    entry.Set("node", from.node);
    auto shape = Napi::Array::New(env);
    if (from.out != no_name) {
      for (const auto extent : declarations[from.out].shape) shape.Set(shape.Length(), static_cast<double>(extent));
    }
    entry.Set("shape", shape);
    entry.Set("rows", static_cast<double>(from.rows));
    entry.Set("microseconds", from.microseconds);
    entry.Set("bytes", static_cast<double>(from.bytes));
    out.Set(static_cast<uint32_t>(i), entry);
  }
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

// Any function may throw where it takes memory. The exception becomes a JavaScript error like one that is returned.
template <Value (*body)(const CallbackInfo&)> Value guarded(const CallbackInfo& info) {
  try {
    return body(info);
  } catch (const DeviceError& error) {
    throw error_value(info.Env(), {Code::unavailable, error.what()});
  } catch (const std::bad_alloc&) {
    throw error_value(info.Env(), {Code::unavailable, "The engine ran out of memory. Free some and try again."});
  }
}

Napi::Object init(Napi::Env env, Napi::Object exports) {
  exports.Set("inspect", Napi::Function::New(env, guarded<inspect>));
  exports.Set("plan", Napi::Function::New(env, guarded<plan>));
  exports.Set("features", Napi::Function::New(env, guarded<features>));
  exports.Set("operations", Napi::Function::New(env, guarded<operations>));
  exports.Set("cuda", Napi::Function::New(env, guarded<cuda>));
  exports.Set("open", Napi::Function::New(env, guarded<open>));
  exports.Set("packedName", Napi::Function::New(env, guarded<packed_name>));
  exports.Set("packing", Napi::Function::New(env, guarded<packing>));
  exports.Set("keepPacked", Napi::Function::New(env, guarded<keep_packed>));
  exports.Set("packedIntact", Napi::Function::New(env, guarded<packed_intact>));
  exports.Set("hashFiles", Napi::Function::New(env, guarded<hash_files>));
  exports.Set("positions", Napi::Function::New(env, guarded<positions>));
  exports.Set("unavailableReason", Napi::Function::New(env, guarded<unavailable_reason>));
  exports.Set("createContext", Napi::Function::New(env, guarded<create_context>));
  exports.Set("forkContext", Napi::Function::New(env, guarded<fork_context>));
  exports.Set("closeContext", Napi::Function::New(env, guarded<close_context>));
  exports.Set("head", Napi::Function::New(env, guarded<head>));
  exports.Set("reset", Napi::Function::New(env, guarded<reset>));
  exports.Set("serialize", Napi::Function::New(env, guarded<serialize>));
  exports.Set("counters", Napi::Function::New(env, guarded<counters>));
  exports.Set("partBytes", Napi::Function::New(env, guarded<part_bytes>));
  exports.Set("capture", Napi::Function::New(env, guarded<capture>));
  exports.Set("restore", Napi::Function::New(env, guarded<restore>));
  exports.Set("load", Napi::Function::New(env, guarded<load>));
  exports.Set("fill", Napi::Function::New(env, guarded<fill>));
  exports.Set("placeBlocks", Napi::Function::New(env, guarded<place_blocks>));
  exports.Set("placeFiles", Napi::Function::New(env, guarded<place_files>));
  exports.Set("filled", Napi::Function::New(env, guarded<filled>));
  exports.Set("dropFilling", Napi::Function::New(env, guarded<drop_filling>));
  exports.Set("restBlocks", Napi::Function::New(env, guarded<rest_blocks>));
  exports.Set("bring", Napi::Function::New(env, guarded<bring>));
  exports.Set("holdBlocks", Napi::Function::New(env, guarded<hold_blocks>));
  exports.Set("dropBlocks", Napi::Function::New(env, guarded<drop_blocks>));
  exports.Set("blockNumbers", Napi::Function::New(env, guarded<block_numbers>));
  exports.Set("blockNews", Napi::Function::New(env, guarded<block_news>));
  exports.Set("stopBlockNews", Napi::Function::New(env, guarded<stop_block_news>));
  exports.Set("sleepBlock", Napi::Function::New(env, guarded<sleep_block>));
  exports.Set("wakeBlock", Napi::Function::New(env, guarded<wake_block>));
  exports.Set("refuseBlock", Napi::Function::New(env, guarded<refuse_block>));
  exports.Set("copyBlock", Napi::Function::New(env, guarded<copy_block>));
  exports.Set("restart", Napi::Function::New(env, guarded<restart>));
  exports.Set("digest", Napi::Function::New(env, guarded<digest>));
  exports.Set("join", Napi::Function::New(env, guarded<join>));
  exports.Set("scatter", Napi::Function::New(env, guarded<scatter>));
  exports.Set("norms", Napi::Function::New(env, guarded<norms>));
  exports.Set("packExperts", Napi::Function::New(env, guarded<pack_experts>));
  exports.Set("expertStatistics", Napi::Function::New(env, guarded<expert_statistics>));
  exports.Set("warmExperts", Napi::Function::New(env, guarded<warm_experts>));
  exports.Set("forgetExperts", Napi::Function::New(env, guarded<forget_experts>));
  exports.Set("saveFrequencies", Napi::Function::New(env, guarded<save_frequencies>));
  exports.Set("measureReads", Napi::Function::New(env, guarded<measure_reads>));
  exports.Set("dropPages", Napi::Function::New(env, guarded<drop_pages>));
  exports.Set("expertNotes", Napi::Function::New(env, guarded<expert_notes>));
  exports.Set("checkExperts", Napi::Function::New(env, guarded<check_experts>));
  exports.Set("exchange", Napi::Function::New(env, guarded<exchange>));
  exports.Set("tokenBytes", Napi::Function::New(env, guarded<token_bytes>));
  exports.Set("speculate", Napi::Function::New(env, guarded<speculate>));
  exports.Set("draft", Napi::Function::New(env, guarded<draft>));
  exports.Set("stats", Napi::Function::New(env, guarded<stats>));
  exports.Set("submit", Napi::Function::New(env, guarded<submit>));
  exports.Set("logits", Napi::Function::New(env, guarded<logits>));
  exports.Set("gates", Napi::Function::New(env, guarded<gates>));
  exports.Set("stateBytes", Napi::Function::New(env, guarded<state_bytes>));
  exports.Set("createExecutor", Napi::Function::New(env, guarded<create_executor>));
  exports.Set("step", Napi::Function::New(env, guarded<step>));
  exports.Set("fetch", Napi::Function::New(env, guarded<fetch>));
  exports.Set("fetchConstant", Napi::Function::New(env, guarded<fetch_constant>));
  exports.Set("moments", Napi::Function::New(env, guarded<moments>));
  exports.Set("trace", Napi::Function::New(env, guarded<trace>));
  exports.Set("closeEngine", Napi::Function::New(env, guarded<close_engine>));
  return exports;
}

}  // namespace

NODE_API_MODULE(continuo, init)

}  // namespace continuo::binding
