#!/bin/sh
# For CI: runs the demo on a fresh log and recomputes all of it from its events. Ends with 1 where one bit of a token, a head or a snapshot differs.
set -eu
log="file:$(mktemp -d)/log.db"
model=$(node --input-type=module --eval "import { demoModel } from 'continuo'; console.log(demoModel)")
npx continuo demo --json --log "$log" > /dev/null
npx continuo verify --log "$log" --model "$model"
