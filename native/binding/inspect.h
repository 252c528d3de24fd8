// Functions of the addon that need no engine: what a file, a graph, this build and this machine are.
#pragma once

#include <napi.h>
#include <string>
#include <vector>

namespace continuo::binding {

// A list of paths, as an argument.
std::vector<std::string> paths_of(const Napi::Value& value);
// What the headers of a model's files say, and how the blocks of a graph will run.
Napi::Value inspect(const Napi::CallbackInfo& info);
Napi::Value plan(const Napi::CallbackInfo& info);
// The op table, the kernels of this CPU, and CUDA on this machine.
Napi::Value operations(const Napi::CallbackInfo& info);
Napi::Value ngram(const Napi::CallbackInfo& info);
Napi::Value features(const Napi::CallbackInfo& info);
Napi::Value cuda(const Napi::CallbackInfo& info);

}  // namespace continuo::binding
