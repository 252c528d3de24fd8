// @ts-check
/** Ask and verify. */
import { follow, pathOf, post } from './api.js'
import { byId, count, plural, setText } from './dom.js'
import { onDraw, onSelect, select, store } from './store.js'

/** @typedef {import('../gateway/console/types.ts').VerifyState} VerifyState */

/** @param {string} id */
const input = (id) => /** @type {HTMLInputElement} */ (byId(id))

export const drawAsk = () => {
  const status = byId('ask-status')
  const answer = byId('ask-answer')
  const session = input('ask-session')
  const text = input('ask-text')
  const cancel = /** @type {HTMLButtonElement} */ (byId('ask-cancel'))
  /** What is being answered. @type {{ session: string, requestId: string, following: AbortController } | null} */
  let asked = null
  let isOwn = false
  session.addEventListener('input', () => {
    isOwn = true
  })
  onSelect((id) => {
    if (!isOwn) session.value = id ?? ''
  })

  const over = () => {
    asked?.following.abort()
    asked = null
    cancel.hidden = true
  }

  /** @param {string} path @param {string} id @param {string} requestId */
  const followAnswer = (path, id, requestId) => {
    const following = new AbortController()
    asked = { session: id, requestId, following }
    cancel.hidden = false
    let tokens = 0
    answer.hidden = false
    answer.replaceChildren()
    setText(status, 'Sent; the answer comes as it is committed.')
    /** The stream goes on behind the last event that came. */
    const taker = {
      /** @param {string} _ @param {any} event */
      event(_, event) {
        if (event.requestId !== requestId || event.index < tokens) return
        tokens = event.index + event.ids.length
        answer.append(event.text)
        if (event.finish === null) setText(status, `${plural(tokens, 'token')} so far…`)
        else {
          setText(status, `The answer has ${plural(tokens, 'token')} (${event.finish}).`)
          over()
        }
      },
    }
    void follow(path, taker, following.signal)
    /** A refused event is a dead letter, and no token will come. */
    const refused = {
      /** @param {string} name @param {any} letter */
      event(name, letter) {
        if (name !== 'message') return
        setText(status, letter.reason)
        over()
      },
    }
    void follow(`${pathOf(id)}/deadletters`, refused, following.signal)
  }

  const send = async () => {
    const id = session.value
    const requestId = crypto.randomUUID()
    const isNew = !store.sessions.has(id)
    const events = [
      ...(isNew ? [{ type: 'open', surprisal: true }] : []),
      ...(text.value === '' ? [] : [{ type: 'text', text: text.value }]),
      {
        type: 'generate',
        requestId,
        maxTokens: input('ask-tokens').valueAsNumber,
        temperature: input('ask-temperature').valueAsNumber,
        seed: Math.floor(Math.random() * 2 ** 31),
      },
    ]
    const { tokens } = await post(`${pathOf(id)}/chunks`, events)
    text.value = ''
    followAnswer(tokens, id, requestId)
    select(id)
  }

  byId('ask-form').addEventListener('submit', (event) => {
    event.preventDefault()
    over()
    send().catch((error) => setText(status, error.message))
  })
  cancel.addEventListener('click', () => {
    if (asked === null) return
    const { session: id, requestId } = asked
    post(`${pathOf(id)}/chunks`, { type: 'cancel', requestId }).catch((error) => setText(status, error.message))
  })
}

/** @param {VerifyState} state */
const verdictOf = ({ state, progress, result, error }) => {
  if (state === 'idle') return ''
  if (state === 'running')
    return progress === null
      ? 'Reading the log…'
      : `Partition ${progress.partition}: offset ${count(progress.offset)} of ${count(progress.end)}`
  if (result === null) return `It could not end: ${error}`
  if (result.moved)
    return 'The log was written to while it was verified, so there is no result. Verify again when nothing writes to it.'
  const compared = `${plural(result.sessions, 'session')} from ${plural(result.events, 'event')} in ${result.seconds.toFixed(1)} s: ${plural(result.tokens, 'generated token')}, ${plural(result.heads, 'head')} and ${plural(result.snapshots, 'snapshot')} compared.`
  return `${result.ok ? 'Everything agrees.' : `${plural(result.findings, 'finding')}.`} ${compared}`
}

export const drawVerify = () => {
  const button = /** @type {HTMLButtonElement} */ (byId('verify-begin'))
  const bar = /** @type {HTMLProgressElement} */ (byId('verify-progress'))
  const status = byId('verify-status')
  const findings = byId('verify-findings')
  let refusal = ''
  let shown = ''
  button.addEventListener('click', () => {
    refusal = ''
    post('/v1/console/verify').catch((error) => {
      refusal = error.message
      setText(status, refusal)
    })
  })
  onDraw(() => {
    const verify = store.frame?.verify
    if (verify === undefined) return
    const isRunning = verify.state === 'running'
    button.disabled = isRunning
    bar.hidden = !isRunning
    if (isRunning && verify.progress !== null) {
      bar.max = Math.max(1, verify.progress.end)
      bar.value = verify.progress.offset
    } else if (isRunning) bar.removeAttribute('value')
    if (refusal === '' || isRunning) setText(status, verdictOf(verify))
    status.dataset.tone = verify.result === null ? '' : verify.result.ok ? 'good' : 'bad'
    const found = verify.result?.shown ?? []
    if (found.join('\n') === shown) return
    shown = found.join('\n')
    findings.hidden = found.length === 0
    findings.replaceChildren(
      ...found.map((sentence) => {
        const item = document.createElement('li')
        item.textContent = sentence
        return item
      }),
    )
  })
}
