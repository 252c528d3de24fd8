/** Reading config.json: against a schema, and what is refused by all families in the same words. */
import { z } from 'zod'
import { ContinuoError } from '../errors.ts'
import { schemaFault } from '../issues.ts'

export const refuseConfig = (what: string): never => {
  throw new ContinuoError('INVALID', `config.json ${what}.`)
}

/**
 * Reads config.json by a schema. `family`: how messages call it, with its article. Throws INVALID, naming the family
 * and the key.
 */
export const readBySchema = <T>(
  schema: z.ZodType<T>,
  parsed: unknown,
  family = `a ${(Object(parsed) as { readonly model_type?: unknown }).model_type}`,
): T => {
  const result = schema.safeParse(parsed)
  if (result.success) return result.data
  const issue = schemaFault(result.error)
  return refuseConfig(`is not ${family} configuration: ${issue.path.join('.')} ${issue.message}`)
}

/** A number of something. */
export const size = z.int().positive()

/** Refuses layer_types that are not one for each of L layers. */
export const refuseLayerTypes = (types: readonly unknown[] | null | undefined, L: number): void => {
  if (types != null && types.length !== L)
    refuseConfig(`names ${types.length} layer_types and says num_hidden_layers is ${L}, expected one for each layer`)
}

/**
 * The key heads that H query heads share: as many where the configuration does not say. Throws INVALID unless they
 * divide evenly.
 */
export const keyHeadsOf = (H: number, told: number | null | undefined): number => {
  const G = told ?? H
  if (H % G !== 0)
    refuseConfig(`says num_attention_heads is ${H} and num_key_value_heads is ${G}, expected a multiple of it`)
  return G
}

/**
 * Channels of each of H heads, which turn in pairs; C / H where the configuration does not say. Throws INVALID for an
 * odd number.
 */
export const turningHeadWidth = (C: number, H: number, told: number | null | undefined): number => {
  const d = told ?? C / H
  if (!Number.isInteger(d) || d % 2 !== 0) refuseConfig(`says a head has ${d} channels, expected an even number`)
  return d
}
