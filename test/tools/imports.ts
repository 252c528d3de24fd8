/**
 * Reads which modules import which, types included. dependency-cruiser reads TypeScript with the compiler's own parser
 * up to version 6, and TypeScript 7 offers none to programs; import and export lines in this repository have the one
 * form that biome gives them.
 */
import { globSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'

/** Imports inside the repository, by module; paths relative to `root`. */
export type ImportGraph = ReadonlyMap<string, readonly string[]>

const STATIC = /^(?:import|export)\b[^'"`;]*?\bfrom\s+['"](\.[^'"]+)['"]|^import\s+['"](\.[^'"]+)['"]/gm
const DYNAMIC = /\bimport\(\s*['"](\.[^'"]+)['"]\s*\)/g

const importsOf = (source: string): readonly string[] =>
  [...source.matchAll(STATIC), ...source.matchAll(DYNAMIC)].map(([, from, bare]) => (from ?? bare)!)

export const readImports = (root: string, folders: readonly string[]): ImportGraph => {
  // Installed packages are no modules of the repository, and some have folders whose names end like files.
  const exclude = (path: string): boolean => path.split('/').includes('node_modules')
  const files = folders.flatMap((folder) => globSync(`${folder}/**/*.{ts,js}`, { cwd: root, exclude })).sort()
  return new Map(
    files.map((file) => {
      const found = importsOf(readFileSync(join(root, file), 'utf8'))
      return [file, [...new Set(found.map((path) => normalize(join(dirname(file), path))))]]
    }),
  )
}

/** Modules that a module imports, over any number of others, and itself, each with how many imports away it is. */
export const distancesFrom = (graph: ImportGraph, file: string): ReadonlyMap<string, number> => {
  const found = new Map([[file, 0]])
  for (const [path, distance] of found)
    for (const next of graph.get(path) ?? []) if (!found.has(next)) found.set(next, distance + 1)
  return found
}

/** A circle of imports, first module repeated at its end, for each group of modules that reach each other. */
export const circlesIn = (graph: ImportGraph): readonly (readonly string[])[] => {
  const circles: string[][] = []
  const done = new Set<string>()
  const path: string[] = []
  const visit = (file: string): void => {
    const at = path.indexOf(file)
    if (at >= 0) circles.push([...path.slice(at), file])
    if (at >= 0 || done.has(file)) return
    path.push(file)
    for (const next of graph.get(file) ?? []) visit(next)
    path.pop()
    done.add(file)
  }
  for (const file of graph.keys()) visit(file)
  return circles
}

/** The part of the order that a module belongs to: `topics`, a file or a folder of `src`. */
export const partOf = (file: string): string => {
  const [top, name] = file.split('/')
  return top === 'src' ? `src/${name}${name!.endsWith('.ts') ? '' : '/'}` : `${top}/`
}

/**
 * Imports that the order forbids, as "from → to". A part may import parts of lower floors only; on the ground floor, whose modules
 * are leaves, also its neighbours.
 */
export const against = (graph: ImportGraph, floors: readonly (readonly string[])[]): readonly string[] => {
  const floorOf = (part: string): number => floors.findIndex((parts) => parts.includes(part))
  return [...graph].flatMap(([file, imports]) =>
    imports
      .filter((imported) => {
        const [from, to] = [partOf(file), partOf(imported)]
        if (from === to) return false
        return floorOf(to) > floorOf(from) || (floorOf(to) === floorOf(from) && floorOf(from) > 0)
      })
      .map((imported) => `${file} → ${imported}`),
  )
}
