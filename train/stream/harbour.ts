/**
 * The log of a small harbour, which `npm start` reads: a day in 3,000 lines of eight units, and five lines hidden in it
 * that do not belong there.
 *
 *   node train/stream/harbour.ts > docs/demo/harbour-day.txt
 */
const LINES = 3000
/** The odd lines, each behind so many others. */
const ODD: ReadonlyMap<number, string> = new Map([
  [811, 'lamp: mantle cracked on bearing 210, burning the reserve wick'],
  [1377, 'crane 2: lifted 18400 kg in 41 s, load 37 %'],
  [1904, 'gate north: opened by nobody, closed after 14 s'],
  [2290, 'kernel: I/O error on device sdb, giving up on the write of sector 90177536'],
  [2746, 'weather: wind 6100 kn from W, gusts 9 kn, 11.4 C'],
])

/** mulberry32: numbers below 1 that are the same on each machine. */
let state = 20_261_128
const next = (): number => {
  state = (state + 0x6d2b79f5) | 0
  let t = Math.imul(state ^ (state >>> 15), 1 | state)
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
  return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296
}
const whole = (from: number, to: number): number => from + Math.floor(next() * (to - from + 1))
const pick = <T>(items: readonly T[]): T => items[whole(0, items.length - 1)]!

const BOATS = [
  'Meridian',
  'Anna Holm',
  'Kittiwake',
  'Stella',
  'Brage',
  'Odd Fellow',
  'Nordlys',
  'Petrel',
  'Halcyon',
  'Tern',
]
const GATES = ['north', 'south', 'fish quay']
const KEEPERS = ['warden', 'pilot', 'customs']
const WINDS = ['W', 'SW', 'NW', 'S', 'N']
/** What drifts over the day. */
const drifting = (value: number, step: number, low: number, high: number) => (): number => {
  value = Math.min(high, Math.max(low, value + (next() - 0.5) * step))
  return value
}
const tide = drifting(1.8, 0.1, 0.4, 3.6) // m
const wind = drifting(8, 3, 3, 24) // knots
const warmth = drifting(11, 0.4, 6, 15)
const weather = (): string => {
  const knots = wind()
  return `weather: wind ${Math.round(knots)} kn from ${pick(WINDS)}, gusts ${Math.round(knots * 1.4)} kn, ${warmth().toFixed(1)} C`
}

/** What the units say, and how often. */
const UNITS: readonly (readonly [share: number, say: () => string])[] = [
  [14, () => `tide: gauge ${whole(1, 3)} reads ${tide().toFixed(2)} m, battery ${whole(80, 99)} %`],
  [12, weather],
  [10, () => `crane ${whole(1, 4)}: lifted ${whole(800, 2600)} kg in ${whole(25, 70)} s, load ${whole(20, 85)} %`],
  [8, () => `crane ${whole(1, 4)}: idle for ${whole(60, 900)} s`],
  [9, () => `gate ${pick(GATES)}: opened by ${pick(KEEPERS)}, closed after ${whole(8, 30)} s`],
  [5, () => `gate ${pick(GATES)}: card ${whole(1000, 9999)} accepted`],
  [2, () => `gate ${pick(GATES)}: card ${whole(1000, 9999)} refused, expired`],
  [8, () => `lamp: turned ${whole(58, 62)} times in 10 min, oil ${whole(40, 90)} %`],
  [6, () => `radio: ${pick(BOATS)} asks for berth ${whole(1, 9)}`],
  [6, () => `radio: berth ${whole(1, 9)} given to ${pick(BOATS)}`],
  [5, () => `berth ${whole(1, 9)}: ${pick(BOATS)} made fast, draught ${(2 + next() * 3).toFixed(1)} m`],
  [5, () => `berth ${whole(1, 9)}: ${pick(BOATS)} cast off`],
  [4, () => `pumps: sump ${whole(1, 2)} at ${whole(10, 60)} cm, pump on for ${whole(20, 180)} s`],
  [3, () => `radio: ${pick(BOATS)} reports fog at the bar, sounds every ${whole(60, 120)} s`],
  [3, () => `power: shore line ${whole(1, 6)} draws ${whole(2, 30)} A, meter ${whole(10_000, 99_999)}`],
]
const SHARES = UNITS.reduce((sum, [share]) => sum + share, 0)

const told = (): string => {
  let at = next() * SHARES
  const said = UNITS.find(([share]) => {
    at -= share
    return at < 0
  })
  return (said ?? UNITS[0]!)[1]()
}

const two = (number: number): string => String(number).padStart(2, '0')
let seconds = 0
for (let at = 0; at < LINES; at += 1) {
  seconds += whole(2, 55)
  const clock = `${two(Math.floor(seconds / 3600) % 24)}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`
  console.log(`${clock} ${ODD.get(at) ?? told()}`)
}
