#!/bin/sh
# A conversation in a shell, with curl and jq alone: each line of standard input is a turn, and the answer is printed while it is made.
# $1: the address of a gateway (continuo serve), http://127.0.0.1:8080 if it is missing; $2: the session, which has all that was said before.
# MODEL, MAX_TOKENS and KEY (an API key, where the gateway wants one) are variables.
set -eu
url=${1:-http://127.0.0.1:8080}
session=${2:-shell-$$}
model=${MODEL:-$(curl -fsS "$url/v1/models" -H "authorization: Bearer ${KEY:-none}" | jq -r '.data[0].id')}

while IFS= read -r line; do
  jq -n --arg model "$model" --arg said "$line" --argjson most "${MAX_TOKENS:-256}" \
    '{model: $model, max_tokens: $most, temperature: 0, stream: true, messages: [{role: "user", content: $said}]}' |
    curl -sS -N "$url/v1/chat/completions" -H 'content-type: application/json' -H "authorization: Bearer ${KEY:-none}" \
      -H "x-session: $(jq -rn --arg id "$session" '$id | @uri')" -d @- |
    sed -un -e 's/^data: \({.*\)/\1/p' -e '/^{/p' |
    jq -j --unbuffered 'if .error then error(.error.message) else .choices[0].delta.content // empty end'
  echo
done
