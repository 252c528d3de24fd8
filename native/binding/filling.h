// Functions of the addon that make a context of the parts of a state (runtime/state/filling.h), each part as a job.
#pragma once

#include <napi.h>

namespace continuo::binding {

Napi::Value fill(const Napi::CallbackInfo& info);
Napi::Value place_blocks(const Napi::CallbackInfo& info);
Napi::Value place_files(const Napi::CallbackInfo& info);
Napi::Value rest_blocks(const Napi::CallbackInfo& info);
Napi::Value filled(const Napi::CallbackInfo& info);
Napi::Value drop_filling(const Napi::CallbackInfo& info);

}  // namespace continuo::binding
