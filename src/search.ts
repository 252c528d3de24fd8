/** The first index in [low, high) for which `isBefore` does not hold; it holds for those below, and for none above. */
export const search = (low: number, high: number, isBefore: (at: number) => boolean): number => {
  while (low < high) {
    const middle = (low + high) >>> 1
    if (isBefore(middle)) low = middle + 1
    else high = middle
  }
  return low
}
