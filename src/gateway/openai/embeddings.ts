/**
 * /v1/embeddings, as OpenAI's clients ask: each input is read in a session of its own, and its vector is the mean of
 * the hidden vectors behind its tokens, or the last of them. The model computes the logits of the next token from these
 * vectors; no shipped model is trained to give similar vectors to texts of similar meaning.
 */
import { randomUUID } from 'node:crypto'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { z } from 'zod'
import type { ChunkInput } from '../../../topics/chunks.ts'
import type { Observed } from '../../../topics/observations.ts'
import { idEvents } from '../../client/chunks.ts'
import { numbersIn } from '../../operators/advance/pooling.ts'
import { endingOf } from '../answer/ending.ts'
import { type Answering, OWN_SESSION } from '../answer/job.ts'
import { readAlone, tooLong } from '../answer/read-alone.ts'
import { Refusal } from '../refusal.ts'
import { checkModel, SESSION_HEADER, type Service, sessionInHeader } from '../service.ts'
import { promptIds } from './prompt.ts'
import { lack, parsedBody } from './schema.ts'

/** Inputs of a request, as OpenAI has it. */
const MOST_INPUTS = 2048
/** Inputs of a request that are read at one time; the others wait. */
const AT_ONCE = 16

const id = z.int().min(0)
const ids = z.array(id).min(1)
export const embeddingsRequest = z.strictObject({
  model: z.string(),
  input: z.union([z.string(), z.array(z.string()).min(1).max(MOST_INPUTS), ids, z.array(ids).min(1).max(MOST_INPUTS)]),
  encoding_format: z.enum(['float', 'base64']).default('float'),
  /** Of the vectors behind the tokens: their mean, or the last. */
  pooling: z.enum(['mean', 'last']).default('mean'),
  /** Whether the vector is made one of length 1, as those of OpenAI are. */
  normalize: z.boolean().default(true),
  user: z.string().optional(),
})
type EmbeddingsRequest = z.output<typeof embeddingsRequest>

const LACKING = {
  dimensions: lack('A vector has as many numbers as the hidden vectors of the model.'),
}

const inputsOf = ({ input }: EmbeddingsRequest): readonly (string | number[])[] => {
  if (typeof input === 'string') return [input]
  return typeof input[0] === 'number' ? [input as number[]] : (input as string[] | number[][])
}

/** An input as the one event that feeds it. */
interface Input {
  readonly tokens: number
  readonly event: ChunkInput
}

/** The inputs of a request. Rejects with a Refusal (400) that names the input which cannot be read. */
const inputsRead = async (body: EmbeddingsRequest, { served }: Service): Promise<readonly Input[]> => {
  const all: Input[] = []
  for (const [at, input] of inputsOf(body).entries()) {
    const { ids: read } = await promptIds({ prompt: input }, served, 'input')
    if (read.length === 0)
      throw new Refusal(400, `Input ${at} is empty: no vector stands behind it.`, { param: 'input' })
    const { positions } = served
    if (positions !== null && read.length > positions) throw tooLong(read.length, positions, 'input')
    const [event, ...rest] = idEvents(read)
    if (rest.length > 0)
      throw new Refusal(
        400,
        `Input ${at} has ${read.length} tokens, more than one record holds, and a vector is told of a record. Send it in parts.`,
        { param: 'input' },
      )
    all.push({ tokens: read.length, event: event! })
  }
  return all
}

/** Of length 1; nothing but zeros stays as it is. */
const normalized = (vector: Float32Array): Float32Array => {
  const length = Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0))
  return length === 0 ? vector : vector.map((value) => value / length)
}

const vectorOf = (
  { mean, last }: NonNullable<Observed['embedding']>,
  { pooling, normalize, encoding_format: encoding }: EmbeddingsRequest,
): string | number[] => {
  const vector = new Float32Array(numbersIn(pooling === 'mean' ? mean : last))
  const given = normalize ? normalized(vector) : vector
  return encoding === 'float' ? Array.from(given) : Buffer.from(given.buffer).toString('base64')
}

/**
 * Reads the input in a session of its own, which is closed behind them. Rejects with a Refusal where the worker refuses
 * them.
 */
const embeddingOf = async (
  service: Service,
  { keyName }: Pick<FastifyRequest, 'keyName'>,
  { event }: Input,
  ends: AbortSignal,
): Promise<NonNullable<Observed['embedding']> | null> => {
  const events: ChunkInput[] = [{ type: 'open', embedding: true }, event, { type: 'close' }]
  for await (const { embedding } of readAlone(service, `${OWN_SESSION}${randomUUID()}`, keyName, events, ends))
    if (embedding !== undefined) return embedding
  return null
}

export const embeddingRoutes = (app: FastifyInstance, { service, counter }: Pick<Answering, 'service' | 'counter'>) => {
  app.post('/v1/embeddings', async (request, reply) => {
    const body = parsedBody(embeddingsRequest, request.body, LACKING)
    checkModel(service.served, body.model)
    if (sessionInHeader(request) !== undefined)
      throw new Refusal(400, 'An input is read in a session of its own. Leave the header out.', {
        param: SESSION_HEADER,
      })
    const inputs = await inputsRead(body, service)
    counter.enter(reply, 'whole')
    service.genai.asked(reply, { model: body.model })
    const { ends, cut } = endingOf(reply, service)
    const traced = { ...service, topics: { ...service.topics, headers: service.genai.headersOf(reply) } }
    const over = new AbortController()
    const until = AbortSignal.any([ends, over.signal])
    const data: { object: 'embedding'; index: number; embedding: string | number[] }[] = []
    let next = 0
    /** Takes inputs until none is left. */
    const take = async (): Promise<void> => {
      while (next < inputs.length) {
        const index = next++
        const embedding = await embeddingOf(traced, request, inputs[index]!, until)
        if (embedding === null) throw cut()
        data[index] = { object: 'embedding', index, embedding: vectorOf(embedding, body) }
      }
    }
    try {
      await Promise.all(Array.from({ length: Math.min(AT_ONCE, inputs.length) }, take))
    } finally {
      over.abort()
    }
    const tokens = inputs.reduce((sum, input) => sum + input.tokens, 0)
    const usage = { prompt_tokens: tokens, total_tokens: tokens }
    service.genai.ended(reply, { usage: { ...usage, completion_tokens: 0 } })
    return { object: 'list', data, model: service.served.id, usage }
  })
}
