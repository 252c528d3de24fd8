/** Checks that the gateway's address is free, before a log or a model is opened. */
import { once } from 'node:events'
import { createServer } from 'node:net'
import { ContinuoError } from '../errors.ts'

/** The sentence for an address that cannot be had; null: the error is of something else. */
export const whyNoPort = (error: unknown, host: string, port: number): ContinuoError | null => {
  const { code, message } = error as NodeJS.ErrnoException
  if (error instanceof ContinuoError || code === undefined) return null
  const advice = code === 'EADDRINUSE' ? ' Choose another --port; 0 takes any free one.' : ''
  return new ContinuoError('UNAVAILABLE', `The gateway cannot listen at ${host}, port ${port}: ${message}.${advice}`, {
    cause: error,
  })
}

/**
 * Throws UNAVAILABLE where the address cannot be had now. It is taken and given back: nobody is to be answered before
 * the log is open.
 */
export const tryPort = async (host: string, port: number): Promise<void> => {
  const server = createServer()
  try {
    server.listen({ host, port, exclusive: true })
    await once(server, 'listening')
  } catch (error) {
    throw whyNoPort(error, host, port) ?? error
  } finally {
    server.close()
  }
}
