/** generate: one run of tokens of a request. */
import { MAX_RUN } from '../../../topics/chunks.ts'
import type { Generated } from '../../../topics/tokens.ts'
import { ContinuoError } from '../../errors.ts'
import type { Matcher } from '../../grammar/index.ts'
import { causeOf, type Generate, type Output, type Step, type Tokenized } from '../types.ts'
import { submitBound } from './bound.ts'
import { createDetokenizer, NO_TEXT } from './detokenize.ts'
import { alternativesIn, drawing, followsItself } from './drawing.ts'
import { memoryObservations } from './memory-observations.ts'
import { perspectivesIn } from './perspectives.ts'
import { clockOf, type Inference, moved, NO_TOKENS, remember, type SessionState } from './session-state.ts'
import { spanFrom } from './spans.ts'

const NO_BYTES = new Uint8Array(0)

/** The ids that end a generation: the package's, else the tokenizer's one, and those of the request. */
export const endsOf = ({ ignoreEnd, stopTokens }: Generate, { model, tokenizer }: Inference): readonly number[] => {
  const own = model.endTokens ?? (tokenizer === null || tokenizer.eos === null ? [] : [tokenizer.eos])
  return [...(ignoreEnd ? [] : own), ...stopTokens]
}

/** Up to `count` tokens; `matcher`: where a request with a grammar stands in it. */
export async function generateSlice(
  session: SessionState,
  work: Tokenized,
  event: Generate,
  count: number,
  engine: Inference,
  matcher: Matcher | null,
): Promise<Step> {
  const { context } = session
  const { tokenizer, model } = engine
  const noted = session.head.settings.perspectives && model.perspectives
  const state = session.head.generation ?? { index: 0, ...NO_TEXT }
  const detokenizer = createDetokenizer(state, event.stop)
  const item = {
    context,
    tokens: NO_TOKENS,
    nats: false,
    ...(noted && { perspectives: true }),
    generate: {
      ...drawing(event, () => session.history.tally(event.penaltyLast + state.index)),
      count,
      more: state.index + count < event.maxTokens,
      endTokens: endsOf(event, engine),
      ...(tokenizer !== null && { stop: { ...detokenizer.sought, vocabulary: tokenizer } }),
    },
  }
  const result =
    matcher === null
      ? { ...(await engine.submit(item)), over: null }
      : await submitBound(engine.submit, item, matcher, clockOf(session.head))
  const { ended, over } = result
  const told = memoryObservations(session.head, work, result)
  let head = moved(session.head, result, result.generated.length)
  const ids = [...result.generated]
  const logprobs = [...result.logprobs]
  remember(session, work, engine, ids, followsItself(event) ? state.index + ids.length : 0)
  let stopped = false
  for (const id of ids) stopped = detokenizer.push(tokenizer?.bytesOf(id) ?? NO_BYTES)
  if (stopped !== (ended === 'stop'))
    throw new ContinuoError(
      'INTERNAL',
      `The engine and the text disagree on whether a stop string ended at token ${state.index + ids.length}.`,
    )
  const decoded = detokenizer.end()
  const index = state.index + ids.length
  const whole = index === event.maxTokens ? 'length' : null
  const why = over === 'grammar' ? over : (whole ?? over ?? (ended === 'positions' ? 'context' : ended))
  const finish = stopped ? 'stop' : why
  const value: Generated = {
    type: 'generated',
    version: 1,
    session: head.session,
    requestId: event.requestId,
    index: state.index,
    ids,
    text: decoded.text,
    logprobs,
    ...(event.topLogprobs > 0 && { topLogprobs: alternativesIn(result) }),
    fromPulse: head.conductor.globalStep - ids.length,
    toPulse: head.conductor.globalStep,
    finish,
    cause: causeOf(work.record, event.id ?? null),
  }
  if (finish !== null) session.history.end()
  const generation = { index, ...decoded.state }
  head = {
    ...head,
    generation: finish === null ? generation : null,
    totals: { ...head.totals, generated: head.totals.generated + ids.length },
    // Generated tokens are no observation: the next span begins behind them.
    span: spanFrom(head.conductor.globalStep),
  }
  const drawn = noted ? perspectivesIn(value, result, noted) : []
  const outputs: readonly Output[] = [{ to: 'tokens', value }, ...drawn, ...told]
  const awaited = event.run < MAX_RUN
  return {
    record: work.record,
    session: head.session,
    outputs,
    head,
    done: finish !== null,
    ...(awaited && { awaited }),
  }
}
