/** What the test files of the orders share: which orders a name means, and what is said of one that fails. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect } from 'vitest'
import type { BenchOptions } from '../operators/harness.ts'
import { type DrawOptions, drawOrder } from './draw.ts'
import type { Models } from './models.ts'
import type { Order } from './order.ts'
import { play } from './play.ts'
import { shrink } from './shrink.ts'

/** Kinds of orders, as `CONTINUO_ORDERS` names them. */
export const KINDS = {
  embedded: { kills: false, log: 'embedded' },
  killed: { kills: true, log: 'embedded' },
  kafka: { kills: false, log: 'kafka' },
  'kafka-killed': { kills: true, log: 'kafka' },
} as const satisfies Record<string, Pick<DrawOptions, 'kills' | 'log'>>
export type Kind = keyof typeof KINDS

/** Orders that failed once. The name of each says what was wrong. */
export const CASES: readonly (readonly [name: string, order: Order])[] = readdirSync(join(import.meta.dirname, 'cases'))
  .filter((name) => name.endsWith('.json'))
  .sort()
  .map((name) => [
    name.slice(0, -'.json'.length),
    JSON.parse(readFileSync(join(import.meta.dirname, 'cases', name), 'utf8')) as Order,
  ])

/** What the orders led to, all together: a suite whose orders lead to nothing shows nothing. */
export interface Seen {
  readonly orders: number
  readonly kills: number
  readonly sessions: number
  readonly deleted: number
  readonly partial: number
  readonly notRecomputed: number
  readonly tokens: number
  readonly heads: number
  readonly snapshots: number
}

/** What is wrong, without names and numbers: a smaller order must fail in the same way. */
const kindOf = (fault: string): string =>
  fault
    .replace(/"[^"]*"/g, '')
    .replace(/\b[a-z]?\d+\b/g, '')
    .slice(0, 200)

/** Plays of one order while it is made smaller, and tries of each smaller one. */
const SHRINKING = { most: 300, tries: 2 }

/** Plays the orders of these seeds. At the first that fails, the smallest order found that fails too is the message. */
export const playAll = async (
  kind: Kind,
  [from, count]: readonly [from: number, count: number],
  models: Models,
  fresh: () => BenchOptions = () => ({}),
): Promise<Seen> => {
  const seen = { orders: 0, kills: 0, sessions: 0, deleted: 0, partial: 0, notRecomputed: 0 }
  const compared = { tokens: 0, heads: 0, snapshots: 0 }
  for (let seed = from; seed < from + count; seed += 1) {
    const order = drawOrder(seed, KINDS[kind])
    const { faults, verification, kills } = await play(order, models, fresh())
    if (faults.length > 0) {
      const fails = async (smaller: Order): Promise<boolean> =>
        (await play(smaller, models, fresh())).faults.some((fault) => kindOf(fault) === kindOf(faults[0]!))
      const smallest = await shrink(order, fails, SHRINKING)
      expect.fail(
        `verify does not agree after an order (CONTINUO_ORDERS=${kind}/${seed}):\n${faults.join('\n')}\nThe smallest found that fails, to be kept in test/verify-orders/cases:\n${JSON.stringify(smallest)}`,
      )
    }
    seen.orders += 1
    seen.kills += kills
    seen.sessions += verification!.sessions
    seen.deleted += verification!.deleted
    seen.partial += verification!.partial.length
    seen.notRecomputed += verification!.notRecomputed.length
    compared.tokens += verification!.tokensCompared
    compared.heads += verification!.headsCompared
    compared.snapshots += verification!.snapshotsCompared
  }
  return { ...seen, ...compared }
}

/**
 * The orders that `CONTINUO_ORDERS` asks for: a kind and a seed, and how many from there on: `embedded/319`,
 * `killed/1000+50`.
 */
export const asked = (): readonly [kind: Kind, range: readonly [from: number, count: number]] | null => {
  const given = process.env.CONTINUO_ORDERS
  if (given === undefined) return null
  const [, kind, from, count = '1'] = /^([a-z-]+)\/(\d+)(?:\+(\d+))?$/.exec(given) ?? []
  if (kind === undefined || !(kind in KINDS))
    throw new Error(
      `CONTINUO_ORDERS is "${given}", expected KIND/SEED or KIND/SEED+COUNT, with one of the kinds ${Object.keys(KINDS).join(', ')}.`,
    )
  return [kind as Kind, [Number(from), Number(count)]]
}
