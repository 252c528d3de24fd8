/** vitest globalSetup: one broker for the whole run. Tests read it by `inject('kafka')`. */
import type { TestProject } from 'vitest/node'
import { findKafka } from './broker.ts'

declare module 'vitest' {
  export interface ProvidedContext {
    kafka: { readonly brokers: string | null; readonly missing: string | null }
  }
}

export const setup = async ({ provide }: TestProject): Promise<() => Promise<void>> => {
  const { kafka, missing } = await findKafka()
  provide('kafka', { brokers: kafka?.brokers ?? null, missing: missing ?? null })
  return async () => kafka?.stop()
}
