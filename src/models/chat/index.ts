/** The form of conversation of a package: its chat template, or that of RWKV's World and G1 models. */
import { join } from 'node:path'
import { z } from 'zod'
import type { GgufMetadata } from '../../engine/native.ts'
import { ContinuoError, messageOf } from '../../errors.ts'
import { readBounded } from '../../files.ts'
import { schemaFault } from '../../issues.ts'
import { MOST_CONFIG_BYTES, readJsonFile } from '../../json.ts'
import type { Tokenizer } from '../tokenizer/index.ts'
import type { Turns } from '../tokenizer/types.ts'
import { callFormOf } from './calls.ts'
import { type NamedTokens, rwkvChat, templateChat } from './conversation.ts'
import { checkDate } from './date.ts'
import { type ChatForm, rwkvForm, templateForm } from './form.ts'
import type { ChatTemplate } from './template.ts'
import { knowsThoughts } from './thoughts.ts'
import { type Chat, type ChatOptions, MOST_TEMPLATE } from './types.ts'

export type { ChatForm } from './form.ts'
export type { Asked, Chat, ChatOptions, Message } from './types.ts'

interface Found extends NamedTokens {
  readonly source: string
  readonly where: string
}

const named = z.union([z.string(), z.looseObject({ content: z.string() })]).nullish()
const templates = z.union([z.string(), z.array(z.looseObject({ name: z.string(), template: z.string() }))])
const settings = z.looseObject({ chat_template: templates.nullish(), bos_token: named, eos_token: named })

const absent = (cause: unknown): boolean => ['ENOENT', 'ENOTDIR'].includes((cause as NodeJS.ErrnoException).code ?? '')

const readTemplateFile = async (path: string): Promise<string | null> => {
  try {
    return (await readBounded(path, 4 * MOST_TEMPLATE)).toString('utf8')
  } catch (cause) {
    if (absent(cause)) return null
    if (cause instanceof ContinuoError) throw cause
    throw new ContinuoError('INVALID', `Cannot read ${path}: ${messageOf(cause)}.`, { cause })
  }
}

const readSettings = async (path: string): Promise<z.infer<typeof settings>> => {
  let json: unknown
  try {
    json = (await readJsonFile(path, MOST_CONFIG_BYTES)).json
  } catch (cause) {
    if (absent(cause)) return {}
    throw cause
  }
  const parsed = settings.safeParse(json)
  if (parsed.success) return parsed.data
  const { path: member, message } = schemaFault(parsed.error)
  throw new ContinuoError('INVALID', `${path} has a malformed ${member.join('.')}: ${message}.`)
}

/** Of several templates the one named default. */
const chosen = (found: z.infer<typeof templates>, path: string): string => {
  if (typeof found === 'string') return found
  const template = found.find(({ name }) => name === 'default')?.template
  if (template !== undefined) return template
  const names = found.map(({ name }) => name).join(', ')
  throw new ContinuoError('INVALID', `${path} has the chat templates ${names || '(none)'}, expected one named default.`)
}

const contentOf = (token: z.infer<typeof named>): string | undefined =>
  token == null ? undefined : typeof token === 'string' ? token : token.content

/** Of a folder: chat_template.jinja goes before tokenizer_config.json. */
const inFolder = async (dir: string): Promise<Found | null> => {
  const path = join(dir, 'tokenizer_config.json')
  const { chat_template, ...about } = await readSettings(path)
  const map = await readSettings(join(dir, 'special_tokens_map.json'))
  const tokens = {
    bosToken: contentOf(about.bos_token) ?? contentOf(map.bos_token),
    eosToken: contentOf(about.eos_token) ?? contentOf(map.eos_token),
  }
  const file = join(dir, 'chat_template.jinja')
  const own = await readTemplateFile(file)
  if (own !== null) return { ...tokens, source: own, where: file }
  return chat_template == null ? null : { ...tokens, source: chosen(chat_template, path), where: path }
}

const inGguf = (metadata: GgufMetadata, path: string): Found | null => {
  const source = metadata.get('tokenizer.chat_template')
  if (typeof source !== 'string') return null
  const tokens = metadata.get('tokenizer.ggml.tokens')
  const token = (key: string): string | undefined => {
    const id = Number(metadata.get(`tokenizer.ggml.${key}`) ?? -1)
    const found: unknown = Array.isArray(tokens) ? tokens[id] : undefined
    return typeof found === 'string' ? found : undefined
  }
  return { source, where: path, bosToken: token('bos_token_id'), eosToken: token('eos_token_id') }
}

/** What a form of conversation is read from. */
export interface ChatPackage {
  /** The folder of the package, or the GGUF file. */
  readonly dir: string
  readonly modelType: string
  readonly tokenizer: Tokenizer
  /** Of a model that is a GGUF file. */
  readonly metadata?: GgufMetadata | null
}

interface Form {
  readonly turns: Turns
  /** null: RWKV's own. */
  readonly template: Found | null
}

/**
 * chat_template.jinja, else chat_template of tokenizer_config.json, else that of the GGUF file, else RWKV's for RWKV-7.
 * Throws INVALID for a package without a form.
 */
const findForm = async ({ dir, modelType, tokenizer, metadata = null }: ChatPackage): Promise<Form> => {
  const { turns } = tokenizer
  if (turns === undefined)
    throw new ContinuoError(
      'INVALID',
      `The tokenizer of ${dir} cannot write conversations. Use a package with its own.`,
    )
  const template = (await inFolder(dir)) ?? (metadata === null ? null : inGguf(metadata, dir))
  if (template !== null || modelType === 'rwkv7') return { turns, template }
  throw new ContinuoError(
    'INVALID',
    `${dir} has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json), so the form of its conversations is not known. Use an instruction-tuned package, or put its template there; \`continuo generate\` continues any text.`,
  )
}

/** Loaded where it is needed: only conversations by a template need the library that reads Jinja. */
const parsed = async ({ source, where }: Found): Promise<ChatTemplate> =>
  (await import('./template.ts')).chatTemplate(source, where)

/**
 * A new conversation in the form of the package. Throws INVALID for a package without a form, and for a template that
 * cannot be used.
 */
export const openChat = async (about: ChatPackage, options: ChatOptions = {}): Promise<Chat> => {
  if (options.date !== undefined) checkDate(options.date)
  const { turns, template } = await findForm(about)
  if (template === null) return rwkvChat(turns, options)
  return templateChat(await parsed(template), turns, { ...options, ...template })
}

/**
 * The form of the package for messages that are all given. Throws as `openChat` does. `date` is asked at each
 * rendering.
 */
export const openForm = async (about: ChatPackage, date?: () => string): Promise<ChatForm> => {
  const { turns, template } = await findForm(about)
  if (template === null) return rwkvForm(turns)
  const render = await parsed(template)
  const { bosToken, eosToken } = template
  const calls = callFormOf(template.source)
  const thinks = knowsThoughts(template.source) ? 'ever' : 'never'
  const dated: ChatTemplate = (rendering) => render({ ...rendering, date: date?.() })
  return templateForm(dated, turns, { bosToken, eosToken }, calls, thinks)
}
