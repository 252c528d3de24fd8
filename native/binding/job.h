// Jobs: work on many bytes that must not stop the event loop. A job runs on a thread of libuv's pool and settles a
// promise.
//
// Teardown. Node waits for the pool's work before it runs cleanup hooks, so a job may use an engine's model and its
// device until its end.
#pragma once

#include <functional>
#include <napi.h>
#include <span>
#include <vector>

#include "base/result.h"

namespace continuo::binding {

struct Job {
  // On a thread of the pool. Touches no JavaScript. A std::bad_alloc or DeviceError that it throws becomes an error.
  std::function<Status()> body;
  // On the JavaScript thread: the result of a body that succeeded; without it undefined.
  std::function<Napi::Value(Napi::Env)> value;
  // On the JavaScript thread, before the promise settles, whether the body succeeded or failed.
  std::function<void()> end;
  // Arrays whose memory the body uses. Their owner must not change them, nor detach their buffers, until the promise
  // settles.
  std::vector<Napi::ObjectReference> kept;
};

// Takes hold of an array for a job, and returns its bytes.
std::span<std::byte> keep(Job& job, const Napi::Value& array);

void start(Napi::Env env, Job job, Napi::Promise::Deferred deferred);
// The promise of a job that belongs to no engine.
Napi::Value promise_of(Napi::Env env, Job job);

}  // namespace continuo::binding
