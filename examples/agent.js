// An agent that may be killed at any moment, as may be the gateway, the worker and the broker behind it: what it does
// to the world it does once.
//
//   node agent.js http://127.0.0.1:8080 FOLDER [--turns 12] [--name trip]
//
// Killed and started again with the same arguments, it goes on where it stood; a run that is to begin anew takes
// another name and folder. Three things make that so:
//
// - A question has a key (Idempotency-Key) that follows from where the agent stands, the name of its run and the number
//   of the turn. Sent again under its key, as often as it takes, it has the answer that it had the first time, also
//   where nobody was left who knew of it.
// - So a call has one id for ever, and an effect is written together with the id of its call: an id that is there
//   already was done.
// - What happened is a file, FOLDER/transcript.jsonl, which is read at the start and written after each step. Whole
//   conversations are sent, not the new messages of a session: then that file is all there is to know, and a turn's
//   answer follows from it alone.
import { closeSync, existsSync, fsyncSync, mkdirSync, openSync, readFileSync, truncateSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'
import { parseArgs } from 'node:util'

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: { turns: { type: 'string', default: '12' }, name: { type: 'string', default: 'trip' } },
})
const [url = 'http://127.0.0.1:8080', folder = '.'] = positionals
const turns = Number(values.turns)

/** The lines of a file. One that a kill has cut off is cut away: what it was to say comes again. */
const linesOf = (file) => {
  if (!existsSync(file)) return []
  const bytes = readFileSync(file)
  const whole = bytes.lastIndexOf('\n') + 1
  if (whole < bytes.length) truncateSync(file, whole)
  const lines = bytes.toString('utf8', 0, whole).split('\n').slice(0, -1)
  return lines.map((line) => JSON.parse(line))
}

/** One line in one write, on the disk before anything follows from it. */
const append = (file, value) => {
  const opened = openSync(file, 'a')
  writeSync(opened, `${JSON.stringify(value)}\n`)
  fsyncSync(opened)
  closeSync(opened)
}

mkdirSync(folder, { recursive: true })
const transcript = join(folder, 'transcript.jsonl')
const effects = join(folder, 'effects.jsonl')

const city = { enum: ['Oslo', 'Bergen', 'Narvik'] }
const object = (properties) => ({
  ...{ type: 'object', additionalProperties: false, properties, required: Object.keys(properties) },
})
const tools = {
  // It only looks, so it may be done as often as one likes.
  weather: {
    description: 'The weather of a city.',
    parameters: object({ city }),
    run: (asked) => ({ Oslo: 'Snow.', Bergen: 'Rain.', Narvik: 'Wind.' })[asked.city],
  },
  // It does something. The effect and the id are one line: either both are there or neither is. Where the effect is
  // elsewhere (a payment, a mail), the id goes with it as the key that the other side asks for.
  book: {
    description: 'Books a room.',
    parameters: object({ city, nights: { enum: [1, 2, 3] } }),
    run: (asked, id) => {
      const done = linesOf(effects)
      const before = done.findIndex((effect) => effect.id === id)
      if (before < 0) append(effects, { id, ...asked })
      return `Booking ${1 + (before < 0 ? done.length : before)}.`
    },
  },
}

/** Sends the same until it is answered. What is refused for good throws. */
const ask = async (path, init) => {
  for (;;) {
    try {
      const response = await fetch(new URL(path, url), { ...init, signal: AbortSignal.timeout(60_000) })
      const body = await response.json()
      if (response.ok) return body
      if (response.status !== 429 && response.status < 500)
        throw Object.assign(new Error(body.error?.message), { body })
    } catch (error) {
      // Nobody is there, or the connection was cut within the answer.
      if (error.body !== undefined) throw error
    }
    await wait(100)
  }
}

/** The message that answers the conversation so far. */
const answer = async (model, turn, messages) => {
  const functions = Object.entries(tools).map(([name, { description, parameters }]) => ({
    ...{ type: 'function', function: { name, description, parameters } },
  }))
  const request = { model, messages, tools: functions, tool_choice: 'required', parallel_tool_calls: false }
  const { choices } = await ask('/v1/chat/completions', {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'idempotency-key': `${values.name}, turn ${turn}` },
    body: JSON.stringify({ ...request, seed: turn, temperature: 0.8, max_tokens: 400 }),
  })
  return choices[0].message
}

const messages = linesOf(transcript)
const say = (message) => {
  append(transcript, message)
  messages.push(message)
}
if (messages.length === 0) say({ role: 'user', content: 'Find three nights without rain, and book them.' })
const { data } = await ask('/v1/models')
for (;;) {
  // Calls of the last answer that have no result yet: all of them, or, behind a kill, the rest.
  const asked = messages.findLastIndex(({ role }) => role === 'assistant')
  for (const { id, function: called } of (messages[asked]?.tool_calls ?? []).slice(messages.length - 1 - asked))
    say({ role: 'tool', tool_call_id: id, content: tools[called.name].run(JSON.parse(called.arguments), id) })
  const turn = messages.filter(({ role }) => role === 'assistant').length
  if (turn >= turns) break
  say(await answer(data[0].id, turn, messages))
}
console.log(`${turns} turns, ${linesOf(effects).length} bookings`)
