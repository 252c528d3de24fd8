#include "binding/executors.h"

#include "binding/engines.h"
#include "binding/values.h"
#include "weights/widen.h"

namespace continuo::binding {

using Napi::CallbackInfo;
using Napi::Value;

namespace {

// The host executor of a handle; throws while a call uses its context.
std::shared_ptr<ExecutorHandle> idle_executor(const Value& value) {
  auto executor = unwrap<std::shared_ptr<ExecutorHandle>>(value, executor_tag);
  if (executor->engine->closed()) throw error_value(value.Env(), {Code::misuse, "the model is closed."});
  if (executor->host->context->busy())
    throw error_value(value.Env(), {Code::misuse, "the executor is busy; wait for the call that has it."});
  return executor;
}

}  // namespace

// createExecutor(context, options)
Value create_executor(const CallbackInfo& info) {
  auto context = idle_context(info[0]);
  auto host = context->engine->engine().host_executor(context->context, options_of(info[1]));
  return wrap(info.Env(), std::make_shared<ExecutorHandle>(ExecutorHandle{context->engine, std::move(host)}),
              executor_tag);
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

}  // namespace continuo::binding
