/** `continuo demo --memory`: facts on the first page of a long text, asked for at its end. */
import { readFile } from 'node:fs/promises'
import type { TopicNames } from '../../../topics/index.ts'
import { type Observation, observation } from '../../../topics/observations.ts'
import { chunkRecord } from '../../client/chunks.ts'
import { ContinuoError, messageOf } from '../../errors.ts'
import type { ModelPackage } from '../../models/open.ts'
import { CALL, recallModel } from '../../places.ts'
import type { EventLog, RecordIn } from '../../streams/log.ts'
import type { ExitCode } from '../command.ts'
import { exitCodeOf } from '../commands/run.ts'
import { stateOf } from '../common.ts'
import { count, plural, print, printJson, quoted, say } from '../output.ts'
import { type Fact, factsFrom, isRight, longText, question, told } from './facts.ts'
import { generatedText, headOf, requestsSoFar, work } from './working.ts'

const SESSION = 'long-text'
const FACTS = 3
/** The facts stand between these characters of the text. */
const PAGE = [200, 1600] as const
const PIECE = 16_384
const ANSWER = 64
/** Archived blocks that are in memory; the others are in the log. */
const CACHE = 2 ** 26
const SEED = 7

const requestName = (number: number): string => `answer-${number}`

interface Asked {
  readonly fact: Fact
  readonly answer: string
  readonly right: boolean
  /** Blocks that came back for it. */
  readonly blocks: readonly number[]
}

const asking = (facts: readonly Fact[], from: number): RecordIn[] =>
  facts.flatMap((fact, i) => [
    chunkRecord(SESSION, { type: 'text', text: question(fact) }),
    chunkRecord(SESSION, {
      ...{ type: 'generate', requestId: requestName(from + i + 1), maxTokens: ANSWER, temperature: 0, stop: ['\n'] },
    }),
  ])

/** The whole text and its questions in one transaction: a run that is killed here leaves all of it or none. */
const firstRecords = async (document: string, length: number, facts: readonly Fact[]): Promise<RecordIn[]> => {
  const text = told(longText(await readFile(document, 'utf8'), length, SEED), facts, ...PAGE).slice(0, length)
  const pieces = Array.from({ length: Math.ceil(text.length / PIECE) }, (_, i) =>
    chunkRecord(SESSION, { type: 'text', text: text.slice(i * PIECE, (i + 1) * PIECE) }),
  )
  return [chunkRecord(SESSION, { type: 'open', memory: true }), ...pieces, ...asking(facts, 0)]
}

/** A `<RETRIEVE>` of the session: after the token of which pulse, and what it brought. */
export interface Brought {
  readonly pulse: number
  readonly blocks: readonly number[]
}

const retrievals = async (log: EventLog, names: TopicNames): Promise<readonly Brought[]> => {
  const { begin, end } = await log.bounds(names.observations, 0)
  const found: Brought[] = []
  for await (const { records } of log.read(names.observations, 0, begin, { until: end }))
    for (const { value } of records) {
      if (value === null) continue
      const seen: Observation = observation.parse(JSON.parse(Buffer.from(value).toString()))
      if (seen.type !== 'remembered' || seen.session !== SESSION) continue
      for (const event of seen.events)
        if (event.type === 'retrieve' && event.reason === 'token')
          found.push({ pulse: event.pulse, blocks: event.blocks })
    }
  return found
}

/**
 * The blocks that came back for an answer whose tokens have these pulses: a model may ask its memory several times, or
 * not at all.
 */
export const broughtWithin = (
  brought: readonly Brought[],
  { from, to }: { readonly from: number; readonly to: number },
): readonly number[] => {
  const own = brought.filter(({ pulse }) => pulse >= from && pulse < to).flatMap(({ blocks }) => blocks)
  return [...new Set(own)].sort((a, b) => a - b)
}

export interface MemoryDemo {
  readonly log: EventLog
  readonly names: TopicNames
  readonly loaded: ModelPackage
  readonly document: string
  /** Characters of the text. */
  readonly length: number
  readonly json: boolean
  /** The command that runs it again. */
  readonly again: string
  readonly modelDir: string
}

export const demoMemory = async (demo: MemoryDemo): Promise<ExitCode> => {
  const { log, names, loaded, document, length, json, again, modelDir } = demo
  if (loaded.model.outerMemory === null)
    throw new ContinuoError(
      'INVALID',
      `${modelDir} has no external memory; demo --memory takes ${recallModel}, or a decoder with a memory.json.`,
    )
  const facts = factsFrom(SEED, FACTS)
  const before = await requestsSoFar(log, names, SESSION, requestName)
  const { heads, cursor } = await stateOf(log, names, 0)
  const { begin, end } = await log.bounds(names.chunks, 0)
  const unfinished = before > 0 && (cursor?.offset ?? begin) < end
  const first = unfinished ? before - FACTS : before
  if (!unfinished)
    await log.append(
      names.chunks,
      before === 0 ? await firstRecords(document, length, facts) : asking(facts, before),
      0,
    )
  const resumed = heads.get(SESSION)
  if (!json) {
    if (resumed === undefined)
      print(
        `A text of ${count(length)} characters; ${plural(FACTS, 'fact')} on its first page, and at its end they are asked for. Attention sees the last page of it, and what the memory brings back.`,
      )
    else print(`The session stands at pulse ${count(resumed.conductor.globalStep)}; it is asked again.`)
  }
  const started = performance.now()
  const outcome = await work({
    ...{ log, names, loaded, json, again },
    settings: { commitInterval: 200, snapshotEvery: 65_536, blocks: { maxBytes: CACHE } },
  })
  const seconds = (performance.now() - started) / 1000
  const brought = await retrievals(log, names)
  const asked: Asked[] = []
  for (const [i, fact] of facts.entries()) {
    const { text, ...pulses } = await generatedText(log, names, SESSION, requestName(first + i + 1))
    asked.push({ fact, answer: text.trim(), right: isRight(text, fact), blocks: broughtWithin(brought, pulses) })
  }
  const head = await headOf(log, names, SESSION)
  const pulse = head?.conductor.globalStep ?? 0
  if (json) printJson({ pulse, chain: head?.chain ?? null, ended: outcome.ended, asked })
  else {
    const width = Math.max(...asked.map(({ answer }) => answer.length))
    for (const { fact, answer, right, blocks } of asked)
      print(
        `\n  What is the ${fact.what}?\n  ${answer.padEnd(width)}   ${right ? 'right' : `wrong, it is ${fact.value}`}; brought back: ${blocks.length === 0 ? 'nothing' : `${plural(blocks.length, 'block')} ${blocks.join(', ')}`}`,
      )
    const from = resumed?.conductor.globalStep ?? 0
    print(
      `\nRead and wrote ${plural(pulse - from, 'token')} in ${seconds.toFixed(1)} s; ${asked.filter(({ right }) => right).length} of ${FACTS} answers are right. Session "${SESSION}" stands at pulse ${count(pulse)}, chain ${head?.chain.slice(0, 12)}….`,
    )
    print(
      `Try next:\n  ${again}   ask again; nothing is read anew\n  ${CALL} sessions --log ${quoted(log.url)} --memory ${SESSION}   what it remembers`,
    )
  }
  for (const [, error] of outcome.refused) say(messageOf(error))
  return exitCodeOf(outcome)
}
