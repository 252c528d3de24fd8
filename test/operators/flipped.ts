/**
 * One flipped bit in each kind of blob that a session with an external memory writes, in a store: it is refused by
 * name, and either a worker computes the session again, or `repair` mends it. Nothing of it is seen in chains.
 */
import { expect, type TestOptions, test } from 'vitest'
import type { ChunkInput } from '../../topics/chunks.ts'
import { type Bench, type BenchOptions, event, verified } from './harness.ts'
import { type Damage, heldBy, inTopic, PAGED, repaired, tokens, type wideBenches } from './memory-bench.ts'

/** `needed`: what has a worker read the blob, beside the session itself. */
const KINDS: readonly { readonly kind: string; readonly what: RegExp; readonly needed: readonly ChunkInput[] }[] = [
  { kind: 'an archived block', what: /^archived block 7$/, needed: [{ type: 'retrieve', blocks: [7] }] },
  { kind: 'the last archived block', what: /^archived block 25[6-9]$/, needed: [{ type: 'retrieve', blocks: [256] }] },
  { kind: 'rows of the index', what: /^rows 0 to 255 of the index$/, needed: [] },
  { kind: 'a block of the window', what: /^places \d+ to \d+ of the window$/, needed: [] },
  { kind: 'a page of names', what: /^page 0 of the names of archived blocks$/, needed: [] },
]

const victimOf = async (bench: Bench, what: RegExp) => {
  const victim = (await heldBy(bench, 's')).find((each) => what.test(each.what))
  if (victim === undefined) throw new Error(`The session has no blob with ${what}.`)
  return victim
}

/** What the session comes to where nothing is ever damaged. */
const straight = async (bench: Bench, kinds: typeof KINDS): Promise<string> => {
  await bench.feed(tokens('s', PAGED), ...kinds.flatMap(({ needed }) => goesOn(needed)))
  await bench.settle()
  return (await bench.heads()).get('s')!.chain
}
const goesOn = (needed: readonly ChunkInput[]) => [...needed.map((each) => event('s', each)), tokens('s', 20, 5)]

/**
 * `open` gives the options of a bench with an empty store, and the way to damage that store. `worker`, `repair`:
 * options of the two tests. `first`: the first kind of blob alone.
 */
export const flippedBits = (
  name: string,
  benches: ReturnType<typeof wideBenches>,
  open: () => { readonly options: BenchOptions; readonly damage: Damage },
  {
    worker = {},
    repair = {},
    first = false,
  }: { readonly worker?: TestOptions; readonly repair?: TestOptions; readonly first?: boolean } = {},
): void => {
  const kinds = first ? KINDS.slice(0, 1) : KINDS
  const where = first ? kinds[0]!.kind : 'each kind of blob'
  test(
    `a flipped bit in ${where} in ${name}: a worker names it, computes the session again, and goes on`,
    worker,
    async () => {
      const { options, damage } = open()
      let expected = ''
      await benches.use(async (bench) => {
        expected = await straight(bench, kinds)
      })
      await benches.use(async (bench) => {
        await bench.feed(tokens('s', PAGED))
        await bench.settle()
        for (const { kind, what, needed } of kinds) {
          const victim = await victimOf(bench, what)
          await damage.flip(bench, victim)
          await bench.feed(...goesOn(needed))
          const told: string[] = []
          const { states } = await bench.settle({ retryPause: 5, warn: (message) => told.push(message) })
          told.push(...states.map(({ error }) => String(error)))
          const sentence = `The blob with ${victim.what} of session "s" (sha256 ${victim.hash.slice(0, 12)}…)`
          expect(told.join('\n'), kind).toContain(sentence)
          expect(told.join('\n'), kind).toContain('; continuo repair --session s computes it again.')
        }
        expect((await bench.heads()).get('s')).toMatchObject({ status: 'open', chain: expected })
        await verified(bench)
      }, options)
    },
  )

  test(`a flipped bit in ${where} in ${name} is named and mended by repair`, repair, async () => {
    const { options, damage } = open()
    await benches.use(async (bench) => {
      await bench.feed(tokens('s', PAGED))
      await bench.settle()
      const isTopic = damage === inTopic
      for (const { kind, what } of kinds) {
        const all = await heldBy(bench, 's')
        const victim = await victimOf(bench, what)
        await damage.flip(bench, victim)
        const [seen, ...others] = await repaired(bench)
        expect(others).toEqual([])
        // What a page names is not looked at where the page itself cannot be put back.
        const blobs = isTopic && victim.what.startsWith('page') ? 1 : all.length
        expect(seen, kind).toMatchObject({ session: 's', blobs, wrong: 1, repaired: 1, anew: isTopic, left: null })
        expect(seen!.reason).toContain(`The blob with ${victim.what} of session "s"`)
        expect(seen!.reason).toMatch(isTopic ? /cannot be read from .* where it is damaged/ : /is damaged in the blob/)
      }
      expect(await repaired(bench)).toMatchObject([{ wrong: 0, repaired: 0, reason: null, left: null }])
      await bench.feed(tokens('s', 20, 5))
      const warnings: string[] = []
      const { states } = await bench.settle({ warn: (message) => warnings.push(message) })
      expect(warnings).toEqual([])
      expect(states.every(({ error }) => error === undefined)).toBe(true)
      await verified(bench)
    }, options)
  })
}
