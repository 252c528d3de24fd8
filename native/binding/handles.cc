#include "binding/handles.h"

namespace continuo::binding {

struct EngineHandle::Completion {
  std::shared_ptr<Call> call;
  std::optional<Error> error;
  MakeValue value;
};

Napi::Error error_value(Napi::Env env, const Error& error) {
  Napi::Error out = Napi::Error::New(env, error.message);
  out.Set("code", Napi::String::New(env, name_of(error.code)));
  return out;
}

std::shared_ptr<EngineHandle> EngineHandle::make(Napi::Env env, size_t threads, double step_target) {
  std::shared_ptr<EngineHandle> self(new EngineHandle(env));
  try {
    self->engine_ = std::make_unique<Engine>(threads, step_target);
  } catch (const std::exception& error) {
    throw error_value(env, {Code::unavailable,
                            text("cannot start ", threads, " engine threads: ", error.what(), ". Ask for fewer.")});
  }
  const auto name = Napi::String::New(env, "continuo engine");
  const napi_status made = napi_create_threadsafe_function(env, nullptr, nullptr, name, 0, 1, nullptr, nullptr, nullptr,
                                                           settle, &self->function_);
  if (made != napi_ok) throw error_value(env, internal("cannot create a thread-safe function."));
  // An idle model must not keep the process alive.
  napi_unref_threadsafe_function(env, self->function_);
  napi_add_env_cleanup_hook(env, teardown, self.get());
  return self;
}

std::shared_ptr<EngineHandle::Call> EngineHandle::begin(Napi::Env env) {
  if (pending_++ == 0) napi_ref_threadsafe_function(env, function_);
  return std::make_shared<Call>(Call{shared_from_this(), Napi::Promise::Deferred::New(env)});
}

std::shared_ptr<EngineHandle::Call> EngineHandle::begin_quietly(Napi::Env env) {
  return std::make_shared<Call>(Call{shared_from_this(), Napi::Promise::Deferred::New(env), true});
}

void EngineHandle::forget() {
  if (--pending_ == 0 && function_) napi_unref_threadsafe_function(env_, function_);
}

void EngineHandle::complete(std::shared_ptr<Call> call, std::optional<Error> error, MakeValue value) {
  const auto function = call->handle->function_;
  auto* completion = new Completion{std::move(call), std::move(error), std::move(value)};
  // The queue is unbounded and the function outlives the engine's threads, so this call cannot fail while they run.
  napi_call_threadsafe_function(function, completion, napi_tsfn_nonblocking);
}

void EngineHandle::settle(napi_env raw_env, napi_value, void*, void* data) {
  const std::unique_ptr<Completion> completion(static_cast<Completion*>(data));
  // The environment is being torn down, so there is no promise left to settle.
  if (raw_env == nullptr) return;
  const auto& call = completion->call;
  if (!call->quiet) call->handle->forget();
  // While a worker is being terminated every call into JavaScript throws, also the settling of a promise. No exception
  // may leave this function.
  try {
    answer(raw_env, *completion);
  } catch (...) {}
}

void EngineHandle::answer(Napi::Env env, const Completion& completion) {
  const Napi::HandleScope scope(env);
  const auto& [call, error, value] = completion;
  try {
    if (error)
      call->deferred.Reject(error_value(env, *error).Value());
    else
      call->deferred.Resolve(value(env, call->handle));
  } catch (const Napi::Error& failure) {
    call->deferred.Reject(failure.Value());
  } catch (const std::exception& failure) {
    call->deferred.Reject(error_value(env, internal(failure.what())).Value());
  }
}

void EngineHandle::close() { close(false); }

void EngineHandle::close(bool tearing_down) {
  if (!engine_) return;
  // Who listens would keep this handle.
  if (const auto loaded = engine_->model(); loaded && loaded->sleepy_blocks) loaded->sleepy_blocks->listen(nullptr);
  engine_->stop();
  engine_.reset();
  if (!tearing_down) napi_remove_env_cleanup_hook(env_, teardown, this);
  if (function_) napi_release_threadsafe_function(function_, napi_tsfn_release);
  function_ = nullptr;
}

}  // namespace continuo::binding
