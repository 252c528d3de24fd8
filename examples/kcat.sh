#!/bin/sh
# Other clients of the topics: kcat (librdkafka) feeds two sessions of a log on Kafka, and reads what they said. $1: HOST:PORT of a broker.
# CONTINUO and MODEL take the place of the installed command and the shipped model.
set -eu
broker=${1:?HOST:PORT of a broker}
continuo=${CONTINUO:-npx continuo}
model=${MODEL:-$(node --input-type=module --eval "import { demoModel } from 'continuo'; console.log(demoModel)")}
prefix=kcat-$$
log=kafka://$broker/$prefix

$continuo topics apply --log "$log" --partitions 4
# A session is a key, and librdkafka's own way to choose a partition is another one than Java's: see docs/streams.md.
kcat -b "$broker" -P -t "$prefix.chunks" -K: -X partitioner=murmur2_random <<'EVENTS'
ann:{"type":"text","text":"The harbour was quiet. "}
bob:{"type":"text","text":"The wind rose at night. "}
ann:{"type":"generate","requestId":"ann-1","maxTokens":32,"temperature":0}
bob:{"type":"generate","requestId":"bob-1","maxTokens":32,"temperature":0}
EVENTS
$continuo run --log "$log" --group "$prefix" --model "$model" --until-idle 100 --log-level warn
kcat -b "$broker" -C -t "$prefix.tokens" -o beginning -e -q -X isolation.level=read_committed -f '%k %s\n'
