/** How guesses of tokens are asked for in words, and what may be asked. */
import { ContinuoError } from '../errors.ts'
import { SPECULATION, type Speculation } from './options.ts'

const { min, max, drafting } = SPECULATION

/** `N`, or `N,always` for guesses also where they cost time; `name` stands in the sentence. Throws INVALID. */
export const readSpeculation = (text: string, name: string): Speculation => {
  const [, tokens, always] = /^(\d{1,9})(,always)?$/.exec(text) ?? []
  if (tokens !== undefined && Number(tokens) <= max) return { tokens: Number(tokens), adapt: always === undefined }
  throw new ContinuoError(
    'INVALID',
    `${name} is ${JSON.stringify(text)}, expected a whole number from ${min} to ${max}, with ",always" behind it to guess also where it costs time.`,
  )
}

/**
 * What a model does whose caller says nothing: what the variable CONTINUO_SPECULATE says, else guesses only with a
 * draft model. Throws INVALID.
 */
export const usualSpeculation = (drafts: boolean, env: NodeJS.ProcessEnv = process.env): Speculation =>
  env.CONTINUO_SPECULATE
    ? readSpeculation(env.CONTINUO_SPECULATE, 'CONTINUO_SPECULATE')
    : { tokens: drafts ? drafting : min }

/** Throws INVALID. */
export const checkSpeculation = ({ tokens }: Speculation): void => {
  if (!Number.isInteger(tokens) || tokens < min || tokens > max)
    throw new ContinuoError('INVALID', `speculate.tokens is ${tokens}, expected a whole number from ${min} to ${max}.`)
}
