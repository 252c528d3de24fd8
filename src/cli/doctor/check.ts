export interface Check {
  readonly name: string
  readonly status: 'ok' | 'warn' | 'fail'
  readonly detail: string
  /** What to do about it. */
  readonly remedy?: string
}

export const ok = (name: string, detail: string): Check => ({ name, status: 'ok', detail })
export const warn = (name: string, detail: string, remedy: string): Check => ({ name, status: 'warn', detail, remedy })
export const fail = (name: string, detail: string, remedy: string): Check => ({ name, status: 'fail', detail, remedy })
