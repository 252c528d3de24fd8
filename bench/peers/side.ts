/** The interface of a side of the bench. Both engines get the same calls with the same ids. */
export interface Side {
  readonly name: string
  /** Resets the single session that `feed`, `prefill` and `decode` share. */
  fresh(): Promise<void>
  /** Logits [vocabulary] after `ids` have been appended to the session. */
  feed(ids: Int32Array): Promise<Float32Array>
  /** Seconds from a fresh session to the logits after the last of `ids`. */
  prefill(ids: Int32Array): Promise<number>
  /**
   * Seconds for `steps` single tokens, logits after each, in a session that has read `prompt`; reading it is not timed.
   */
  decode(prompt: Int32Array, steps: number): Promise<number>
  /** The same for many sessions in one batch, one for each prompt. */
  decodeMany(prompts: readonly Int32Array[], steps: number): Promise<number>
  /** Logits [vocabulary] of each session of the last `decodeMany` after one more token of its own. */
  feedMany(ids: Int32Array): Promise<readonly Float32Array[]>
  close(): Promise<void>
}
