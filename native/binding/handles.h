// What JavaScript holds: an engine with its model, and contexts. Both are shared pointers behind an External, so that a
// call in flight keeps what it needs whatever the garbage collector does.
//
// Threads. Everything here runs on the JavaScript thread of one environment, except `complete`, which the engine's
// thread calls. It hands a Completion over through a thread-safe function and touches no JavaScript.
//
// Teardown. Node runs cleanup hooks last-added first. The thread-safe function adds its own when it is made; ours is
// added after it, so it runs before: it stops the engine and joins its threads while the thread-safe function is still
// valid.
#pragma once

#include <functional>
#include <memory>
#include <napi.h>

#include "runtime/engine.h"

namespace continuo::binding {

class EngineHandle : public std::enable_shared_from_this<EngineHandle> {
 public:
  static std::shared_ptr<EngineHandle> make(Napi::Env env, size_t threads, double step_target);
  ~EngineHandle() { close(); }

  Engine& engine() { return *engine_; }
  // Of an engine that has loaded one.
  std::shared_ptr<const Model> model() const { return engine_->model(); }

  // A promise for a job about to be submitted: it keeps the event loop alive until it settles.
  struct Call {
    std::shared_ptr<EngineHandle> handle;
    Napi::Promise::Deferred deferred;
  };
  std::shared_ptr<Call> begin(Napi::Env env);
  // Undoes `begin` when the job was refused.
  void forget();

  using MakeValue = std::function<Napi::Value(Napi::Env, const std::shared_ptr<EngineHandle>&)>;
  // From the engine's thread: settles the call's promise with the value, or rejects it with the error. The engine's
  // thread must give its call away here and keep no copy: the last owner of a handle joins that very thread.
  static void complete(std::shared_ptr<Call> call, std::optional<Error> error, MakeValue value);

  bool closed() const { return !engine_; }
  size_t pending() const { return pending_; }
  void close();

 private:
  struct Completion;
  explicit EngineHandle(Napi::Env env) : env_(env) {}
  static void settle(napi_env env, napi_value, void*, void* data);
  static void answer(Napi::Env env, const Completion& completion);
  static void teardown(void* self) { static_cast<EngineHandle*>(self)->close(true); }
  void close(bool tearing_down);

  Napi::Env env_;
  napi_threadsafe_function function_ = nullptr;
  std::unique_ptr<Engine> engine_;
  size_t pending_ = 0;
};

struct ContextHandle {
  std::shared_ptr<EngineHandle> engine;
  std::shared_ptr<Context> context;  // null once closed
  int64_t told = 0;                  // bytes that the garbage collector knows of
};

struct ExecutorHandle {
  std::shared_ptr<EngineHandle> engine;
  std::shared_ptr<HostExecutor> bridge;
};

// A JavaScript error with `code` and `message`, as src/engine/native.ts expects it.
Napi::Error error_value(Napi::Env env, const Error& error);

}  // namespace continuo::binding
