/** Texts and packages for suites of ngram memories. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { callNative } from '../../../src/engine/native.ts'
import type { NgramKind } from '../../../src/engine/ngram-ops.ts'
import { random, safetensors, type Tensor, writePackage } from '../../engine/packages.ts'

/**
 * What a memory has a context for: lines of templates, numbers that rise, fall and repeat, prose, bytes above 127,
 * numbers of 25 figures, long and empty lines.
 */
export const logLines = (seed: number, bytes: number): Uint8Array => {
  const next = random(seed)
  const below = (n: number): number => Math.floor(next() * n)
  let [clock, id] = [86_390, 997]
  const ids = Array.from({ length: 5 }, () =>
    below(2 ** 30)
      .toString(16)
      .padStart(8, '0'),
  )
  const two = (n: number): string => String(n).padStart(2, '0')
  const stamp = (): string => {
    clock += below(3)
    return `2026-02-0${1 + Math.floor(clock / 86_400)} ${two(Math.floor(clock / 3600) % 24)}:${two(Math.floor(clock / 60) % 60)}:${two(clock % 60)}`
  }
  const nextId = (): number => {
    id += 1
    return id
  }
  const templates: readonly (() => string)[] = [
    () => `${stamp()} INFO [worker-${below(3)}] request id=${nextId()} took ${below(400)} ms`,
    () => `${stamp()} WARN disk /dev/sd${'abc'[below(3)]} at ${90 + below(9)}%, ${1_003 - 7 * (id - 997)} blocks left`,
    () => `job=${ids[below(5)]},step=${id},state="done"; next (${id + 1})`,
    () => 'GET /index.html HTTP/1.1 200',
    () => 'The quick brown fox jumps over the lazy dog, and nobody counts the dogs.',
    () => `größe: ${below(10)}µs — naïve café №${id}`,
    () => '',
    () => `sum ${'1234567890'.repeat(3).slice(below(5), 25)} and 000${id} and 0`,
    () => `-_$.<[(${String.fromCharCode(33 + below(90))})]>\t${'0'.repeat(1 + below(21))}${id}`,
  ]
  const lines: Buffer[] = []
  for (let length = 0; length < bytes; length += lines.at(-1)!.length) {
    const line =
      lines.length === 11 ? `${'word 42 '.repeat(40)}${'x'.repeat(90)}` : templates[below(templates.length)]!()
    lines.push(Buffer.from(`${line}\n`))
    // Bytes that are no text.
    if (below(17) === 0) lines.push(Buffer.from(Array.from({ length: 9 }, () => below(256))))
  }
  return Uint8Array.from(Buffer.concat(lines).subarray(0, bytes))
}

/** Numbers of a package's first mixture, as other texts might have left them. */
export const randomLearned = (seed: number, kind: NgramKind = 'bytes'): Float32Array => {
  const next = random(seed)
  const { learned } = callNative((addon) => addon.ngram(kind, 1024))
  return Float32Array.from({ length: learned }, () => (next() - 0.4) / 3)
}

export const writeNgram = (slots: number, learned: Float32Array | null = null, more: object = {}): string => {
  const tensors = new Map<string, Tensor>()
  if (learned !== null) tensors.set('learned', { shape: [learned.length], data: learned })
  return writePackage({ model_type: 'ngram', vocab_size: 256, slots, ...more }, safetensors(tensors))
}

/** The BF16 numbers of a package's only tensor. */
export const shippedLearned = (folder: string): Float32Array => {
  const file = readFileSync(join(folder, 'model.safetensors'))
  const from = 8 + Number(file.readBigUInt64LE(0))
  const numbers = new Uint16Array(Uint8Array.from(file.subarray(from)).buffer)
  return new Float32Array(Uint32Array.from(numbers, (bits) => bits * 65536).buffer)
}
