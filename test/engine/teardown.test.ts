/**
 * A process, or a worker of it, may end while the engine works. It must end as asked: no crash, no hang.
 *
 * @module-tag slow
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { beforeAll, describe, expect, it } from 'vitest'
import { randomRwkv7, safetensors, writePackage } from './packages.ts'

let dir = ''
beforeAll(() => {
  dir = writePackage(
    { model_type: 'rwkv7' },
    safetensors(randomRwkv7(1, { L: 4, H: 4, N: 32, F: 512, V: 20, D: { w: 8, a: 8, v: 8, g: 8 } })),
  )
})

const open = new URL('../../src/models/open.ts', import.meta.url).href

const run = async (script: string): Promise<{ code: number | null; signal: string | null; out: string }> => {
  const source = `
    import { openModel } from ${JSON.stringify(open)}
    const dir = ${JSON.stringify(dir)}
    const long = new Int32Array(200_000).fill(1)
    ${script}`
  const child = spawn(process.execPath, ['--input-type=module', '--eval', source], {
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let out = ''
  child.stdout.on('data', (piece) => {
    out += piece
  })
  child.stderr.on('data', (piece) => {
    out += piece
  })
  const [code, signal] = (await once(child, 'close')) as [number | null, string | null]
  return { code, signal, out }
}

describe('teardown', () => {
  it('a process exits at once while a call is running', async () => {
    const end = await run(`
      const model = await openModel(dir, { threads: 2 })
      const call = model.submit({ context: model.createContext(), tokens: long, nats: true })
      call.then(() => console.log('It was waited for.'), () => {})
      setTimeout(() => process.exit(7), 50)`)
    expect(end).toEqual({ code: 7, signal: null, out: '' })
  })

  it('a process exits, and a worker of it ends, while states are copied and contexts freed', async () => {
    const end = await run(`
      const model = await openModel(dir, { threads: 2 })
      const contexts = Array.from({ length: 50 }, () => model.createContext())
      for (const context of contexts) context.state().then(() => context.close()).catch(() => {})
      process.exit(7)`)
    expect(end).toEqual({ code: 7, signal: null, out: '' })
    const ended = await run(`
      import { Worker } from 'node:worker_threads'
      const source = \`
        import { parentPort } from 'node:worker_threads'
        import { openModel } from '${open}'
        const model = await openModel('\${dir}', { threads: 2 })
        const contexts = Array.from({ length: 50 }, () => model.createContext())
        for (const context of contexts) context.state().then(() => context.close()).catch(() => {})
        // A thread that listens does not end by itself, so it is always terminate() that ends it.
        parentPort.on('message', () => {})
        parentPort.postMessage('begun')\`
      const url = new URL('data:text/javascript,' + encodeURIComponent(source))
      const worker = new Worker(url)
      worker.once('message', async () => console.log(await worker.terminate()))`)
    expect(ended).toEqual({ code: 0, signal: null, out: '1\n' })
  })

  it('a process stays until its calls are answered, and an open model alone does not keep it', async () => {
    const end = await run(`
      const model = await openModel(dir, { threads: 2 })
      const context = model.createContext()
      model.process([{ context, tokens: long.subarray(0, 2000), nats: false }]).then(() => console.log(context.pulse))`)
    expect(end).toEqual({ code: 0, signal: null, out: '2000n\n' })
  })

  it('an uncaught error while a call is running is reported as itself', async () => {
    const end = await run(`
      const model = await openModel(dir, { threads: 2 })
      model.process([{ context: model.createContext(), tokens: long, nats: false }])
      setTimeout(() => { throw new Error('on purpose') }, 20)`)
    expect(end.code).toBe(1)
    expect(end.signal).toBeNull()
    expect(end.out).toContain('on purpose')
  })

  it('a worker is terminated while a call is running; the process goes on with models of its own', async () => {
    const end = await run(`
      import { Worker } from 'node:worker_threads'
      const body = \`
        import { parentPort } from 'node:worker_threads'
        const { openModel } = await import(${JSON.stringify(open)})
        const model = await openModel(\${JSON.stringify(dir)}, { threads: 2 })
        model.process([{ context: model.createContext(), tokens: new Int32Array(200000).fill(1), nats: true }]).catch(() => {})
        parentPort.postMessage('running')\`
      for (let i = 0; i < 3; i++) {
        const worker = new Worker(new URL('data:text/javascript,' + encodeURIComponent(body)))
        worker.on('error', (error) => { console.log(error); process.exit(3) })
        await new Promise((resolve) => worker.once('message', resolve))
        await worker.terminate()
      }
      const model = await openModel(dir, { threads: 1 })
      const context = model.createContext()
      await model.process([{ context, tokens: long.subarray(0, 10), nats: false }])
      console.log('alive at pulse ' + context.pulse)`)
    expect(end).toEqual({ code: 0, signal: null, out: 'alive at pulse 10\n' })
  })

  it.each([
    ['terminated from outside', `await worker.terminate()`, `parentPort.postMessage('answered')`],
    ['ended from inside', `await new Promise((resolve) => worker.once('exit', resolve))`, `process.exit(0)`],
    [
      'ended by an error',
      `await new Promise((resolve) => worker.once('exit', resolve))`,
      `throw new Error('on purpose')`,
    ],
  ])('a worker is %s between the answers of many calls', async (_, end, act) => {
    const { code, signal, out } = await run(`
      import { once } from 'node:events'
      import { Worker } from 'node:worker_threads'
      const body = \`
        import { parentPort } from 'node:worker_threads'
        const { openModel } = await import(${JSON.stringify(open)})
        const model = await openModel(\${JSON.stringify(dir)}, { threads: 2 })
        const calls = Array.from({ length: 50 }, () => model.process([{ context: model.createContext(), tokens: new Int32Array(1), nats: false }]))
        for (const call of calls) call.then(() => { ${act} }, () => {})
        // All answers wait in one queue when this thread looks up.
        const until = Date.now() + 300
        while (Date.now() < until);\`
      for (let i = 0; i < 5; i++) {
        const worker = new Worker(new URL('data:text/javascript,' + encodeURIComponent(body)))
        worker.on('error', () => {})
        if (${JSON.stringify(act)}.includes('postMessage')) await once(worker, 'message')
        ${end}
      }
      console.log('alive')`)
    expect({ code, signal, out }).toEqual({ code: 0, signal: null, out: 'alive\n' })
  })

  it('models and contexts that are dropped without close are collected', async () => {
    const end = await run(`
      import { setFlagsFromString } from 'node:v8'
      setFlagsFromString('--expose-gc')
      const { runInNewContext } = await import('node:vm')
      const gc = runInNewContext('gc')
      for (let i = 0; i < 20; i++) {
        const model = await openModel(dir, { threads: 2 })
        const context = model.createContext()
        const call = model.process([{ context, tokens: long.subarray(0, 100), nats: false }])
        if (i % 2) await call
        gc()
        await new Promise(setImmediate)
      }
      gc()
      console.log('done')`)
    expect(end).toEqual({ code: 0, signal: null, out: 'done\n' })
  })
})
