import { parseName } from '../../hub/cache.ts'
import { PUBLIC_HUB, pullModel } from '../../hub/pull.ts'
import { command } from '../command.ts'
import { optional, text, usage } from '../flags.ts'
import { bytes, print, printJson, quoted, say } from '../output.ts'
import { exitCodeOfSignal, untilSignal } from '../signals.ts'

const MOMENT = 200 // ms between two looks at a live line

/** One line for the file in hand: rewritten in a terminal, else said once it is there. */
const progressLine = (live: boolean) => {
  let began = 0
  let first = 0
  let last = 0
  const clear = '\r\u001b[K'
  return {
    begin(line: string): void {
      began = performance.now()
      first = -1
      if (live) process.stderr.write(`${clear}${line}`)
    },
    move(line: string, done: number, all: number): void {
      const now = performance.now()
      if (first < 0) first = done
      if (!live || now - last < MOMENT) return
      last = now
      const rate = (1000 * (done - first)) / Math.max(1, now - began)
      process.stderr.write(`${clear}${line}  ${bytes(done)} of ${bytes(all)}  ${bytes(rate)}/s`)
    },
    end(line: string): void {
      if (live) process.stderr.write(clear)
      say(line)
    },
  }
}

/** Without a slash at its end. */
const hubUrl = (url: string): string => {
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol))
    throw usage(`--hub is ${quoted(url)}, expected a URL that begins with https:// or http://.`)
  return url.replace(/\/+$/, '')
}

export const pull = command({
  name: 'pull',
  about:
    'Downloads a model from a Hugging Face-compatible hub, checks every file and keeps it in the cache, where --model owner/name finds it. What a call did not finish, the next one goes on with.',
  args: [
    { name: 'MODEL', help: 'owner/name, or owner/name:file for one file of it, as of a GGUF model', required: true },
  ],
  flags: {
    hub: text('URL', 'where from', PUBLIC_HUB),
    revision: text('REV', 'a branch, tag or commit', 'main'),
    to: optional('DIR', 'put the files into this folder instead of the cache'),
  },
  notes:
    "Takes config.json, the files of the tokenizer, the chat template, and the weights: safetensors, else pytorch_model.bin, else the one .gguf or .pth. Large files are checked by their sha256, small ones by the hash that Git gives them. HF_TOKEN is sent to the hub, and to no other machine. The cache is $CONTINUO_CACHE, else $XDG_CACHE_HOME/continuo, else ~/.cache/continuo. --model also finds what Hugging Face's own tools have in $HF_HOME.",
  examples: ['pull HuggingFaceTB/SmolLM2-135M-Instruct', 'pull owner/name:model-Q4_K_M.gguf'],
  async run(flags, [wanted]) {
    const model = parseName(wanted!)
    if (model === null)
      throw usage(`${quoted(wanted!)} is no name of a model; expected owner/name, or owner/name:file.`)
    const stopping = untilSignal('Stopping; the same command goes on from here.')
    const token = process.env.HF_TOKEN
    const hub = { url: hubUrl(flags.hub), signal: stopping, ...(token && { token }) }
    const live = progressLine(process.stderr.isTTY === true && !flags.json)
    let line = ''
    try {
      const pulled = await pullModel(hub, {
        model,
        revision: flags.revision,
        ...(flags.to !== undefined && { folder: flags.to }),
        onFile: (file, number, of) => {
          line = `[${number}/${of}] ${file}`
          live.begin(line)
        },
        onProgress: (_, done, all) => live.move(line, done, all),
        onFetched: (_, { bytes: size, downloaded }) =>
          live.end(`${line}  ${bytes(size)}${downloaded ? '' : ', there already'}`),
      })
      if (flags.json) printJson({ model: `${model.owner}/${model.name}`, ...pulled })
      else print(pulled.path)
      return 0
    } catch (error) {
      if (stopping.aborted) return exitCodeOfSignal(stopping)
      throw error
    }
  },
})
