#include "binding/job.h"

#include <memory>
#include <optional>

#include "base/threads.h"
#include "binding/handles.h"

namespace continuo::binding {

namespace {

struct Running {
  Job job;
  Napi::Promise::Deferred deferred;
  napi_async_work work = nullptr;
  std::optional<Error> error;
};

void execute(napi_env, void* data) {
  auto& running = *static_cast<Running*>(data);
  use_default_arithmetic();
  try {
    if (auto done = running.job.body(); !done) running.error = done.error();
  } catch (const DeviceError& error) {
    running.error = Error{Code::unavailable, error.what()};
  } catch (const std::bad_alloc&) {
    running.error = Error{Code::unavailable, "The engine ran out of memory. Free some and try again."};
  }
}

void settle(Napi::Env env, const Running& running) {
  const Napi::HandleScope scope(env);
  const auto& [job, deferred, work, error] = running;
  try {
    if (error)
      deferred.Reject(error_value(env, *error).Value());
    else
      deferred.Resolve(job.value ? job.value(env) : env.Undefined());
  } catch (const Napi::Error& failure) {
    deferred.Reject(failure.Value());
  }
}

void complete(napi_env env, napi_status, void* data) {
  const std::unique_ptr<Running> running(static_cast<Running*>(data));
  napi_delete_async_work(env, running->work);
  if (running->job.end) running->job.end();
  // While a worker is being terminated every call into JavaScript throws. No exception may leave this function.
  try {
    settle(env, *running);
  } catch (...) {}
}

}  // namespace

std::span<std::byte> keep(Job& job, const Napi::Value& array) {
  auto bytes = array.As<Napi::Uint8Array>();
  job.kept.push_back(Napi::Persistent(array.As<Napi::Object>()));
  return {reinterpret_cast<std::byte*>(bytes.Data()), bytes.ByteLength()};
}

void start(Napi::Env env, Job job, Napi::Promise::Deferred deferred) {
  auto running = std::make_unique<Running>(Running{std::move(job), deferred, nullptr, std::nullopt});
  const auto name = Napi::String::New(env, "continuo job");
  if (napi_create_async_work(env, nullptr, name, execute, complete, running.get(), &running->work) != napi_ok ||
      napi_queue_async_work(env, running->work) != napi_ok) {
    if (running->job.end) running->job.end();
    throw error_value(env, internal("cannot start a job on libuv's pool."));
  }
  (void)running.release();
}

Napi::Value promise_of(Napi::Env env, Job job) {
  const auto deferred = Napi::Promise::Deferred::New(env);
  start(env, std::move(job), deferred);
  return deferred.Promise();
}

}  // namespace continuo::binding
