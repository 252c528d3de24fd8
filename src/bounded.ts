/** A map of at most so many entries, which forgets what was set longest ago. */
export interface Bounded<T> {
  get(key: string): T | undefined
  set(key: string, value: T): void
  delete(key: string): void
}

export const bounded = <T>(most: number): Bounded<T> => {
  const map = new Map<string, T>()
  return {
    get: (key) => map.get(key),
    delete: (key) => void map.delete(key),
    set(key, value) {
      map.delete(key)
      map.set(key, value)
      if (map.size > most) map.delete(map.keys().next().value!)
    },
  }
}
