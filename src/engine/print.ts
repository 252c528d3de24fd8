/**
 * A graph as text that can be read beside the paper it implements: declared memory by kind, then each block as code.
 * What is on the left of `=` is a value of the row; what is on the left of `←` is persistent memory.
 */
import {
  type AxisDeclaration,
  type Block,
  type BoundDeclaration,
  type ConstantDeclaration,
  type Declaration,
  type Dtype,
  type Graph,
  indexExtent,
  isBound,
  type Node,
  type OpNode,
  tensorsOf,
} from './graph.ts'
import { storedDtypes } from './layout.ts'
import type { TensorEntry } from './native.ts'

type Of<Kind extends Declaration['kind']> = Declaration & { readonly kind: Kind }

/** How the file holds a constant, all its members together. */
export interface StoredConstant {
  readonly name: string
  readonly members: number
  /** A dtype as safetensors names it, or how a quantised matrix is stored. */
  readonly stored: string
  readonly bytes: number
}

/** Memory of a persistent in a context. */
export interface PersistentSize {
  readonly name: string
  /** Before anything was read. */
  readonly bytes: number
  /** Bytes that each position adds, of a table that grows along one counter. */
  readonly bytesPerPosition: number
  /** Of a table that grows along several counters: what each combination of their positions adds. */
  readonly bytesPerPlace?: number
}

export interface PrintOptions {
  /** Tensors of the weights file. Without them the text leaves out how constants are stored. */
  readonly tensors?: readonly TensorEntry[]
  /** Lines that follow the code of a block. */
  readonly after?: (block: Block) => readonly string[]
}

const count = (value: number): string => value.toLocaleString('en-US')
const product = (extents: readonly number[]): number => extents.reduce((a, b) => a * b, 1)
const shapeText = (shape: readonly (number | string)[]): string => `[${shape.join(', ')}]`

/**
 * Rows of cells as lines with their columns one below the other; `right` names those that stand right. A string is a
 * line of its own.
 */
export const aligned = (
  rows: readonly (string | readonly string[])[],
  right: readonly number[] = [],
): readonly string[] => {
  const widths: number[] = []
  for (const row of rows) {
    if (typeof row === 'string') continue
    for (const [i, cell] of row.entries()) widths[i] = Math.max(widths[i] ?? 0, cell.length)
  }
  const used = widths.map((width) => width > 0)
  return rows.map((row) => {
    if (typeof row === 'string') return row
    const cells = row.map((cell, i) => (right.includes(i) ? cell.padStart(widths[i]!) : cell.padEnd(widths[i]!)))
    return cells
      .filter((_, i) => used[i])
      .join('  ')
      .trimEnd()
  })
}

const declarationsOf = <Kind extends Declaration['kind']>(graph: Graph, kind: Kind): readonly Of<Kind>[] =>
  graph.declarations.filter((declaration): declaration is Of<Kind> => declaration.kind === kind)

export const storedConstants = (graph: Graph, tensors: readonly TensorEntry[]): readonly StoredConstant[] => {
  const byName = new Map(tensors.map((tensor) => [tensor.name, tensor]))
  return declarationsOf(graph, 'constant').map((constant) => {
    const { name, shape, layout, row, view, storage, scales, group } = constant
    const found = (names: readonly string[]): readonly TensorEntry[] => names.flatMap((each) => byName.get(each) ?? [])
    const own = found(tensorsOf(graph, constant))
    const scaled = scales === undefined ? [] : found(scalesOf(graph, constant))
    /** Of a view the rows that it reads; a vector's rows are its numbers. */
    const bytesOf = (tensor: TensorEntry): number => {
      if (row === undefined && view === undefined) return tensor.bytes
      const inputs = layout === 'vector' ? 1 : shape.at(-1)!
      const rows = storage === undefined ? product(tensor.shape) / inputs : product(tensor.shape.slice(0, -1))
      return tensor.bytes * Math.min(1, product(shape) / inputs / rows)
    }
    return {
      name,
      members: tensorsOf(graph, constant).length,
      stored:
        storage === undefined
          ? [...new Set(own.map(({ dtype }) => dtype))].join(' and ')
          : `${storage}, group ${group}`,
      bytes: [...own, ...scaled].map(bytesOf).reduce((a, b) => a + b, 0),
    }
  })
}

/** The scales of a quantised constant are named as its tensors are. */
const scalesOf = (graph: Graph, { ref, pattern, ...rest }: ConstantDeclaration): readonly string[] =>
  tensorsOf(graph, {
    ...rest,
    ...(ref === undefined ? {} : { ref: rest.scales! }),
    ...(pattern === undefined ? {} : { pattern: rest.scales! }),
  })

const extentOf = (graph: Graph, axis: AxisDeclaration): number => {
  if (typeof axis === 'number') return axis
  if ('index' in axis) return indexExtent(graph, axis.index)
  return 'ring' in axis ? axis.ring : 1
}

export const persistentSizes = (graph: Graph): readonly PersistentSize[] =>
  declarationsOf(graph, 'persistent').map((persistent) => {
    const { name } = persistent
    if ('counter' in persistent) {
      const bytes = persistent.clock ? 0 : storedDtypes.i64.array.BYTES_PER_ELEMENT
      return { name, bytes, bytesPerPosition: 0 }
    }
    const { axes, dtype } = persistent
    const bytes = product(axes.map((axis) => extentOf(graph, axis))) * storedDtypes[dtype].array.BYTES_PER_ELEMENT
    const growing = countersOf(axes).length
    return {
      name,
      bytes: growing === 0 ? bytes : 0,
      bytesPerPosition: growing === 1 ? bytes : 0,
      ...(growing > 1 && { bytesPerPlace: bytes }),
    }
  })

/** The counters along which a table grows. */
const countersOf = (axes: readonly AxisDeclaration[]): readonly string[] =>
  axes.flatMap((axis) => (typeof axis === 'object' && 'grows' in axis ? [axis.grows] : []))

const axisText = (axis: AxisDeclaration): string => {
  if (typeof axis === 'number') return String(axis)
  if ('index' in axis) return axis.index
  return 'ring' in axis ? `ring ${axis.ring} by ${axis.counter}` : `grows with ${axis.grows}`
}

/** "att.v1(l), l from 1". */
const familyText = ({ name, over, from = 0 }: BoundDeclaration): string =>
  over === undefined ? name : `${name}(${over})${from === 0 ? '' : `, ${over} from ${from}`}`

const sourceText = ({ ref, pattern, row, transposed, view, columns, map }: ConstantDeclaration): string => {
  const tensor = ref ?? pattern ?? ''
  const part =
    row !== undefined ? `row ${row} of ` : view !== undefined ? 'rows of ' : columns !== undefined ? 'columns of ' : ''
  return `${map === 'one_plus' ? '1 + ' : map === 'neg_exp' ? '−exp ' : ''}${part}${tensor}${transposed ? ', transposed' : ''}`
}

const constantRows = (graph: Graph, tensors: readonly TensorEntry[] | undefined): readonly (readonly string[])[] => {
  const stored = tensors && storedConstants(graph, tensors)
  return declarationsOf(graph, 'constant').map((constant, i) => {
    const { shape, layout, storage, group } = constant
    const found = stored?.[i]
    return [
      `  ${familyText(constant)}`,
      shapeText(shape),
      layout,
      sourceText(constant),
      found?.stored ?? (storage === undefined ? '' : `${storage}, group ${group}`),
      found === undefined ? '' : `${count(found.bytes)} B`,
    ]
  })
}

const persistentRows = (graph: Graph): readonly (readonly string[])[] => {
  const sizes = persistentSizes(graph)
  return declarationsOf(graph, 'persistent').map((persistent, i) => {
    const { name, bytes, bytesPerPosition, bytesPerPlace } = sizes[i]!
    if ('counter' in persistent) {
      if (persistent.clock) return [`  ${name}`, 'clock', 'i64', "the context's own", '', '']
      const bound = persistent.max === undefined ? '' : ` to ${count(persistent.max)}`
      return [`  ${name}`, `counter${bound}`, 'i64', 'init 0', `${count(bytes)} B`, '']
    }
    return [
      `  ${name}`,
      shapeText(persistent.axes.map(axisText)),
      persistent.dtype,
      `init ${numberText(persistent.init)}`,
      `${count(bytes)} B`,
      bytesPerPosition > 0
        ? `and ${count(bytesPerPosition)} B a position`
        : bytesPerPlace !== undefined
          ? `and ${count(bytesPerPlace)} B for each of ${countersOf(persistent.axes).join(' × ')}`
          : '',
    ]
  })
}

const textWidth = 116

/** Names after a heading, wrapped below its end. */
const wrapped = (heading: string, names: readonly string[]): readonly string[] => {
  const lines: string[] = []
  let line = heading
  for (const [i, name] of names.entries()) {
    const next = `${name}${i + 1 < names.length ? ',' : ''}`
    if (line !== heading && line.length + 1 + next.length > textWidth) {
      lines.push(line)
      line = ' '.repeat(heading.length)
    }
    line += line.trim() === '' || line === heading ? next : ` ${next}`
  }
  return [...lines, line]
}

/** Volatile tables: their members, and the tensors they are bound to. */
const volatileTableRows = (graph: Graph): readonly (readonly string[])[] =>
  declarationsOf(graph, 'volatile').flatMap((table) =>
    isBound(table)
      ? [[`  ${familyText(table)}`, shapeText(table.shape), table.dtype, (table.ref ?? table.pattern)!]]
      : [],
  )

const rowText = ({ shape, dtype }: { readonly shape: readonly number[]; readonly dtype: Dtype }): string =>
  dtype === 'f32' ? shapeText(shape) : `${shapeText(shape)} ${dtype}`

/** Volatiles of one shape and dtype stand together: there are many, and the code shows each. */
const volatileLines = (graph: Graph): readonly string[] => {
  const groups = new Map<string, { readonly row: readonly string[]; readonly names: string[] }>()
  for (const declaration of declarationsOf(graph, 'volatile')) {
    if (isBound(declaration)) continue
    const { name, shape, dtype } = declaration
    const bytes = product(shape) * storedDtypes[dtype].array.BYTES_PER_ELEMENT
    const group = groups.get(rowText({ shape, dtype })) ?? {
      row: [`  ${shapeText(shape)}`, dtype, `${count(bytes)} B a row`],
      names: [],
    }
    group.names.push(name)
    groups.set(rowText({ shape, dtype }), group)
  }
  const all = [...groups.values()]
  const width = Math.max(
    0,
    ...aligned(
      all.map(({ row }) => row),
      [2],
    ).map((line) => line.length),
  )
  return aligned(
    all.map(({ row }) => row),
    [2],
  ).flatMap((heading, i) => wrapped(`${heading.padEnd(width)}  `, all[i]!.names))
}

/** Six digits are enough to recognise a number; the graph itself holds all of them. */
const numberText = (value: number): string => {
  const short = Number(value.toPrecision(6))
  return short !== 0 && Math.abs(short) < 1e-3 ? short.toExponential() : String(short)
}
/** The first of many numbers are enough to recognise them. */
const SHOWN = 4
const attributeText = (value: unknown): string => {
  if (!Array.isArray(value) || value.length <= 2 * SHOWN)
    return typeof value === 'number' ? numberText(value) : String(value)
  return `${value.slice(0, SHOWN).map(attributeText)},… (${value.length})`
}

const opCells = (graph: Graph, node: OpNode, indent: string): readonly string[] => {
  const { op, in: inputs = [], out, state, value, ...attributes } = node
  // `less(at, 3)`: a whole number on the right is one of the operands.
  const operands = value === undefined ? inputs : [...inputs, attributeText(value)]
  const result = graph.declarations.find(({ name }) => name === out)
  const said = Object.entries(attributes).map(([name, each]) => `${name} ${attributeText(each)}`)
  const shape = result?.kind === 'volatile' ? rowText(result) : ''
  // cache.write, increment, decrement, reset: what they write is their state.
  if (out === undefined) return [`${indent}${state}`, `← ${op}(${operands.join(', ')})`, said.join(', '), shape]
  const read = state === undefined ? '' : `${operands.length > 0 ? '; ' : ''}${state}`
  return [`${indent}${out}`, `= ${op}(${operands.join(', ')}${read})`, said.join(', '), shape]
}

const nodeRows = (graph: Graph, nodes: readonly Node[], indent: string): readonly (string | readonly string[])[] => {
  const deeper = (list: readonly Node[]) => nodeRows(graph, list, `${indent}  `)
  return nodes.flatMap((node): readonly (string | readonly string[])[] => {
    if ('loop' in node) {
      const { loop, from, to, nodes: body } = node as Extract<Node, { readonly loop: string }>
      return [`${indent}loop ${loop} = ${from} … ${to - 1}${from === to ? ' (no turn)' : ''}`, ...deeper(body)]
    }
    if ('branch' in node) {
      const { branch, equals, nodes: then, otherwise } = node as Extract<Node, { readonly branch: string }>
      const part = equals === undefined ? graph.indices.find(({ name }) => name === branch) : undefined
      const said = part?.of === undefined ? branch : `${part.of} = ${part.at.join(', ')} (${branch})`
      return [
        `${indent}if ${said}${equals === undefined ? '' : ` = ${equals}`}`,
        ...deeper(then),
        ...(otherwise === undefined ? [] : [`${indent}else`, ...deeper(otherwise)]),
      ]
    }
    if ('return' in node) {
      const results = Object.entries((node as Extract<Node, { readonly return: unknown }>).return)
      return [`${indent}return ${results.map(([role, name]) => `${role}: ${name}`).join(', ')}`]
    }
    return [opCells(graph, node as OpNode, indent)]
  })
}

const section = (title: string, lines: readonly string[]): readonly string[] =>
  lines.length === 0 ? [] : [title, ...lines, '']

/** The code of a block: one line a node, loops and branches indented. */
const printBlock = (graph: Graph, { name, inputs, nodes }: Block): readonly string[] => [
  `block ${name}(${inputs.join(', ')})`,
  ...aligned(nodeRows(graph, nodes, '  ')),
]

export const printGraph = (graph: Graph, { tensors, after = () => [] }: PrintOptions = {}): readonly string[] => [
  ...section(
    'indices',
    graph.indices.map((index) =>
      index.of === undefined
        ? `  ${index.name} = 0 … ${index.extent - 1}`
        : `  ${index.name} = 0 … ${index.at.length - 1}, where ${index.of} = ${index.at.join(', ')}`,
    ),
  ),
  ...section('constants', aligned(constantRows(graph, tensors), [5])),
  ...section(
    'dynamics',
    aligned(declarationsOf(graph, 'dynamic').map(({ name, shape, dtype }) => [`  ${name}`, shapeText(shape), dtype])),
  ),
  ...section('persistents', aligned(persistentRows(graph), [4])),
  ...section('volatile tables', aligned(volatileTableRows(graph))),
  ...section('volatiles', volatileLines(graph)),
  ...graph.blocks.flatMap((block) => [...printBlock(graph, block), ...after(block), '']).slice(0, -1),
]
