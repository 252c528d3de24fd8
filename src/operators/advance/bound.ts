/**
 * bound: tokens of a request with a grammar. Each is an item of work of its own, since what may follow depends on the
 * token before.
 */
import type { ContextHead } from '../../engine/context.ts'
import type { Generate, WorkItem, WorkResult } from '../../engine/work.ts'
import { ContinuoError } from '../../errors.ts'
import { type Matcher, openMatcher } from '../../grammar/index.ts'
import type { Vocabulary } from '../../grammar/vocabulary.ts'
import type { Head } from '../../state/head.ts'
import type { History } from '../../state/history.ts'
import type { Generate as Request } from '../types.ts'
import { joinedResults, piece } from './pieces.ts'
import { SessionLost } from './set-aside.ts'

/**
 * Behind the tokens that the request has by now. Throws SessionLost where these are not known, or do not fit its
 * grammar.
 */
export const matcherOf = (
  { grammar, requestId }: Request,
  vocabulary: Vocabulary,
  ends: readonly number[],
  { head, history }: { readonly head: Head; readonly history: History },
): Matcher => {
  const matcher = openMatcher(grammar!, vocabulary, ends)
  const index = head.generation?.index ?? 0
  const generated = history.last(index)
  if (generated.length < index || !generated.every((id) => matcher.accept(id)))
    throw new SessionLost(
      `Session "${head.session}" stands at token ${index} of request "${requestId}", and what is known of these tokens does not fit its grammar.`,
    )
  return matcher
}

/**
 * The item token by token; `over`: why nothing may follow, where that is so. `head` is that of the context before it.
 */
export const submitBound = async (
  submit: (item: WorkItem) => Promise<WorkResult>,
  item: WorkItem & { readonly generate: Generate },
  matcher: Matcher,
  head: ContextHead,
): Promise<WorkResult & { readonly over: ReturnType<Matcher['over']> }> => {
  const { generate } = item
  const generated: number[] = []
  const results: WorkResult[] = []
  const none = new Float32Array(0)
  const nothing: WorkResult = { nats: none, generated: new Int32Array(0), logprobs: none, ended: null, head }
  for (;;) {
    const over = matcher.over()
    if (over !== null || generated.length === generate.count)
      return { ...(results.length > 0 ? joinedResults(results) : nothing), over }
    const { allowed } = matcher.mask()
    const result = await submit({ ...item, generate: { ...piece(generate, generated, 1), allowed } })
    results.push(result)
    for (const id of result.generated) {
      generated.push(id)
      if (!matcher.accept(id))
        throw new ContinuoError('INTERNAL', `Token ${id} was drawn, which the grammar of the request does not allow.`)
    }
    if (result.ended !== null) return { ...joinedResults(results), over: null }
  }
}
