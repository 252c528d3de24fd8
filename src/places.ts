/**
 * Where the files of the package are, and how its commands are called.
 *
 * The same modules run as TypeScript in a checkout and as JavaScript in an installed package, where they lie one folder
 * deeper, in dist/. So no other module counts folders up to the root or writes the ending of a module that it starts.
 */
import { extname, join } from 'node:path'

/** .ts in a checkout, .js in a package. */
const ENDING = extname(import.meta.filename)
const inCheckout = ENDING === '.ts'

/** The folder of package.json. */
export const root = join(import.meta.dirname, ...(inCheckout ? ['..'] : ['..', '..']))

export const inPackage = (...names: readonly string[]): string => join(root, ...names)

/**
 * The folder of the model that is shipped: RWKV-7, 3.1M parameters, one token a byte. `openPackage(demoModel)` opens it
 * anywhere.
 */
export const demoModel: string = inPackage('models', 'demo')
/** The folder of the model that is shipped for streams of lines: an ngram memory without a network. */
export const watchModel: string = inPackage('models', 'watch')

/** The folder of the shipped decoder with an external memory. */
export const recallModel = inPackage('models', 'recall')

/**
 * The module NAME beside the module whose import.meta.url is given: for threads and processes, whose paths the compiler
 * does not rewrite.
 */
export const beside = (module: string, name: string): URL => new URL(`./${name}${ENDING}`, module)

/** What stands before a command's name where a message says what to run. */
export const CALL = inCheckout ? 'npm run continuo --' : 'npx continuo'
/** The demo: by itself, and with flags behind it. */
export const DEMO = inCheckout ? 'npm start' : 'npx continuo demo'
export const DEMO_WITH = inCheckout ? 'npm start --' : DEMO
/** The page on the demo's log, in one command; an installed package has none. */
export const CONSOLE = inCheckout ? 'npm run console' : null
export const SETUP = inCheckout ? 'npm run setup' : 'npx continuo setup'

/** Starts a Kafka broker on this machine. A package does not have the one of a checkout. */
export const BROKER = inCheckout ? 'npm run kafka' : 'docker run -p 127.0.0.1:9092:9092 apache/kafka:4.3.1'
