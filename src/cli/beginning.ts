/** What the sessions of a stream begin with: what the session in a file has read. */
import type { ModelPackage } from '../models/open.ts'
import type { Tokenizer } from '../models/tokenizer/types.ts'
import { admitFile } from '../operators/sessions/admit.ts'
import type { ContextStore } from '../operators/sessions/context-store.ts'
import { checkExport } from '../state/snapshot.ts'
import { idsOf, LINE_END } from '../watch/costs.ts'
import type { Beginning } from '../watch/sessions.ts'
import { type SealValues, sealOf } from './common.ts'
import { checkComplete, openExport } from './export-file.ts'

/**
 * Each call begins a session with the memory and the remembered lines of the session in the file, which ends a line
 * before. Throws INVALID and REFUSED as `continuo import` does.
 */
export const openBeginning = async (
  path: string,
  seal: SealValues,
  { model, tokenizer }: Pick<ModelPackage, 'model'> & { readonly tokenizer: Tokenizer },
  contexts: ContextStore,
): Promise<() => Promise<Beginning>> => {
  const file = await openExport(path)
  try {
    checkExport(file.header, sealOf(seal).sealKeys)
    const { head, context, history } = await admitFile(file, model, tokenizer, contexts)
    checkComplete(path, head)
    const rest = tokenizer.flush(head.cursor.held)
    const last = rest.at(-1) ?? history.last(1)[0]
    const isWhole = last === undefined || tokenizer.bytesOf(last).at(-1) === LINE_END[0]
    const tokens = Int32Array.from([...rest, ...(isWhole ? [] : idsOf(tokenizer, LINE_END))])
    if (tokens.length > 0) await contexts.submit({ context, tokens, nats: false })
    const lines = history.lines()
    return async () => ({ context: await contexts.forkContext(context), judge: lines.elsewhere() })
  } finally {
    await file.close()
  }
}
