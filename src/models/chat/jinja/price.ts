/**
 * The price of a rendering. A template is a program from outside, and a built-in works on values of any size in one
 * call. So each step is paid for before it is done: by the size of what it reads, and of what it would make.
 */

/**
 * One for each statement and expression, for each element that is made or read, and for each `STEP_TEXT` characters. A
 * published template takes some hundred a message. All of them take a second or so.
 */
export const MOST_STEPS = 2_000_000
/** Characters of a step. So the texts of a rendering have 2²⁸ characters in all, and fit the memory. */
const STEP_TEXT = 128
/** Of any text that a template makes, in UTF-16 units: four times what a gateway takes by default. */
export const MOST_TEXT = 1 << 23
/** Lists in lists that are written or compared; JSON of tools has a few. */
const MOST_DEPTH = 64
/** Characters that are looked up in a table, in a step. */
const STEP_LETTERS = 3
/** Comparisons of characters in a search that are a step. */
const STEP_SEARCH = 1 << 16

/** What is wrong with a template or its use, in words that say it. */
export class Fault extends Error {}

/** Counts the steps of one rendering. */
export class Price {
  #steps = 0
  readonly #most: number
  /** Where the rendering is, for messages. */
  line = 1

  constructor(most: number) {
    this.#most = most
  }

  /** Throws when all steps are spent. */
  pay(steps: number): void {
    this.#steps += steps
    // Not a number is too much, and nothing is given back.
    if (!(steps >= 0 && this.#steps <= this.#most)) throw new Fault(`it takes more than ${this.#most} steps`)
  }

  /** Pays for a text that is read or made. */
  text(characters: number): void {
    if (!(characters <= MOST_TEXT)) throw new Fault(`it makes a text of more than ${MOST_TEXT} characters`)
    this.pay(characters / STEP_TEXT)
  }

  /** Pays for a text whose characters are each looked at by what is slow: tables of Unicode. */
  letters(text: string): void {
    this.pay(text.length / STEP_LETTERS)
  }

  /** Pays for a search in a text. */
  search(text: string, sought: string): void {
    this.pay(text.length / STEP_TEXT + (text.length * sought.length) / STEP_SEARCH)
  }

  /** Throws where values are nested too deep to be gone through. */
  depth(depth: number): void {
    if (depth > MOST_DEPTH) throw new Fault(`it writes lists that are nested more than ${MOST_DEPTH} deep`)
  }
}
