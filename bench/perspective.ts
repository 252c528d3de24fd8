/**
 * What the parts of a perspective model do behind its layers (docs/perspective.md, models/perspective/README.md):
 *
 *   node bench/perspective.ts [--model models/perspective] [--text FILE] [--places 12] [--evaluations 100] [--threads 2]
 *
 *   adapt     at so many places of the text, sessions that adapted to what they read last, and the same sessions that did not, read the next
 *             256 tokens: mean surprisals, how many stages were accepted, seconds of an evaluation
 *   HDM       tokens bound there, draws behind it that were recalled, and hits
 *   MPD       of 256 drawn tokens the share that asked the perspectives, agreed, and is another one than the model alone would draw
 */
import { readFileSync } from 'node:fs'
import type { EngineContext } from '../src/engine/context.ts'
import type { Model } from '../src/engine/types.ts'
import { openModel } from '../src/models/open.ts'
import { parseArgs } from './options.ts'
import { median, root } from './support.ts'

const { values } = parseArgs({
  options: {
    model: { type: 'string', default: `${root}models/perspective` },
    text: { type: 'string', default: `${root}docs/demo/harbour-log.txt` },
    places: { type: 'string', default: '12' },
    evaluations: { type: 'string', default: '100' },
    threads: { type: 'string', default: '2' },
  },
})
const places = Number(values.places)
const evaluations = Number(values.evaluations)
const NEXT = 256

const none = new Int32Array(0)
const meanOf = (numbers: Iterable<number>): number => {
  const all = [...numbers].filter(Number.isFinite)
  return all.reduce((sum, each) => sum + each, 0) / all.length
}
const readOn = async (model: Model, context: EngineContext, tokens: Int32Array): Promise<number> => {
  const [result] = await model.process([{ context, tokens, nats: true }])
  return meanOf(result!.nats)
}

const model = await openModel(values.model, {
  threads: Number(values.threads),
  keepPacked: false,
  warn: () => {},
  experts: { frequencies: false },
})
const text = Int32Array.from(readFileSync(values.text))
const step = Math.floor((text.length - NEXT) / places)
const differences: number[] = []
const seconds: number[] = []
let [accepted, stages, bound, recalled, hits, fired, agreed, other, drawn] = [0, 0, 0, 0, 0, 0, 0, 0, 0]
const context = model.createContext()
for (let at = 0, place = 0; place < places; place += 1) {
  const until = (place + 1) * step
  await readOn(model, context, text.subarray(at, until))
  at = until
  const next = text.subarray(until, until + NEXT)
  const plain = model.forkContext(context)
  const adapted = model.forkContext(context)
  const began = performance.now()
  const request = { type: 'adapt', evaluations, seed: BigInt(place) } as const
  const [{ adapted: report } = {}] = await model.process([{ context: adapted, tokens: none, nats: false, request }])
  seconds.push((performance.now() - began) / 1000 / report!.evaluations)
  accepted += report!.stages.filter((stage) => stage.accepted).length
  stages += report!.stages.length
  bound += report!.bound
  const drawing = model.forkContext(adapted)
  differences.push((await readOn(model, adapted, next)) - (await readOn(model, plain, next)))
  // Drawn greedily: what the perspectives change is then what the model alone would not have drawn.
  const alone = model.forkContext(drawing)
  for (let i = 0; i < NEXT / places; i += 1) {
    const logits = await model.logits(alone)
    const own = logits.indexOf(logits.reduce((a, b) => Math.max(a, b)))
    const generate = { count: 1, temperature: 0, topK: 0, topP: 1, seed: 1n }
    const item = { context: drawing, tokens: none, nats: false, perspectives: true, generate }
    const [result] = await model.process([item])
    const [token] = result!.generated
    await model.process([{ context: alone, tokens: Int32Array.of(token!), nats: false }])
    const [note] = result!.draws!
    drawn += 1
    fired += Number(note!.fired)
    agreed += Number(note!.agreed === true)
    recalled += Number(note!.hdm !== null)
    hits += Number(note!.hdm?.hit === true)
    other += Number(token !== own)
  }
  for (const each of [plain, adapted, drawing, alone]) each.close()
}
model.close()
const share = (part: number, of: number): string => `${part} of ${of} (${((100 * part) / of).toFixed(1)} %)`
console.log(`${values.model}, ${values.text}: ${places} places, ${evaluations} evaluations each`)
console.log(
  `adapt  next ${NEXT} tokens: ${differences.map((each) => each.toFixed(4)).join(', ')}; mean ${meanOf(differences).toFixed(4)} nats a token`,
)
console.log(
  `       stages accepted: ${share(accepted, stages)}; ${(median(seconds) * 1000).toFixed(1)} ms an evaluation`,
)
console.log(`HDM    ${bound} tokens bound; draws that asked it: ${share(recalled, drawn)}, hits: ${share(hits, drawn)}`)
console.log(
  `MPD    asked: ${share(fired, drawn)}; agreed: ${share(agreed, drawn)}; another token: ${share(other, drawn)}`,
)
