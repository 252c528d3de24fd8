/** Writes the packed weights of a model to a file, after it said so. */
import { openModel } from '../../../src/models/open.ts'

const [folder, target] = process.argv.slice(2) as [string, string]
const model = await openModel(folder, { threads: 1, keepPacked: false })
process.stdout.write('writing\n')
await model.keepPacked(target)
model.close()
