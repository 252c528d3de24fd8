/** Random small templates: expressions of a grammar over a few values, in a few statements. */

/** Numbers from a seed, the same on any machine (xorshift). */
const numbers = (seed: number): ((below: number) => number) => {
  let state = seed * 2654435761 + 1
  return (below) => {
    state ^= state << 13
    state ^= state >>> 17
    state ^= state << 5
    return (state >>> 0) % below
  }
}

/**
 * What an expression of a kind may be; `$T` stands for an expression of that kind. Those without one are at the ends.
 */
const KINDS: Readonly<Record<string, readonly string[]>> = {
  /** Texts. */
  T: [
    ...[
      'text',
      'astral',
      "''",
      "'a'",
      "'A b'",
      "'12'",
      "'-3.5'",
      "' x\\n'",
      "'ß😀'",
      "'a,b,c'",
      `"it's"`,
      "'Ab ab'",
      'quotes',
      'lines',
    ],
    ...[
      '($T + $T)',
      '($T ~ $A)',
      '$T * 2',
      '$T[$N]',
      '$T[$N:]',
      '$T[:$N]',
      '$T[$N:$N:$N]',
      '$T[::-1]',
      '$A|string',
      '$A|tojson',
    ],
    ...[
      '$T|upper',
      '$T|lower',
      '$T|trim',
      '$T|title',
      '$T|capitalize',
      '$T|replace($T, $T)',
      '$T|center(9)',
      '$T|reverse',
      '$T|trim($T)',
    ],
    ...[
      '$T|indent',
      '$T|indent(2, true)',
      '$T|truncate(5)',
      '$T|truncate(4, true)',
      '$T|urlencode',
      '$T|first',
      '$T|last',
      '$T|default($T)',
    ],
    ...[
      '$T.upper()',
      '$T.strip()',
      '$T.strip($T)',
      '$T.title()',
      '$T.replace($T, $T)',
      '$T.replace($T, $T, 1)',
      '$T.lstrip($T)',
    ],
    ...[
      '$T.rstrip($T)',
      '$T.zfill($N)',
      '$T.center($N)',
      "$T.ljust($N, '*')",
      '$T.capitalize()',
      '$T.swapcase()',
      '$T.removeprefix($T)',
    ],
    ...[
      "'%s' % ($A,)",
      "'%r|%5s' % ($A, $T)",
      "'%d %05.1f' % ($N, $F)",
      "'%x' % ($N * $N)",
      "'%(k)s' % {'k': $A}",
      "'%-6s|' % $T",
    ],
    ...[
      "'{}:{}'.format($A, $A)",
      "'{0!r:>8}'.format($T)",
      "'{:.2f}'.format($F)",
      "'{:+d}'.format($N)",
      "'{:^9}'.format($T)",
      "'{:,}'.format($N)",
    ],
    ...[
      '$L|join($T)',
      '$L|join',
      '$T.join($L|map("string"))',
      '($T if $B else $T)',
      '$D|tojson(indent=2)',
      '$L|tojson(indent=1)',
      'people[$N].name',
    ],
    ...['dict[$T]', '$D.get($T, $T)', '$L|map("upper")|join', '$T.lower()', '$L|string', '$N|filesizeformat'],
  ],
  /** Ints. */
  N: [
    ...['five', '0', '1', '2', '3', '-1', '7', '10', '-3', '255'],
    ...[
      '($N + $N)',
      '($N - $N)',
      '$N * $N',
      '($N // $N)',
      '($N % $N)',
      '$N ** 2',
      '-$N',
      '$N|abs',
      '$T|length',
      '$L|length',
      '$T|int',
      '$F|int',
    ],
    ...[
      '$T.find($T)',
      '$T.count($T)',
      '$T.rfind($T, $N)',
      '$L.count($A)',
      '$T|wordcount',
      '$D|length',
      '$N|default($N)',
      'people[$N].age',
    ],
    ...[
      '[$N, $N]|sum',
      '[$N, $N]|max',
      '[$N, $N, $N]|min',
      '($N if $B else $N)',
      '$T|int($N)',
      '$N|round',
      'list[$N]',
      '[$N, $N][$B]',
    ],
  ],
  /** Floats. */
  F: [
    ...['half', '1.5', '2.0', '-0.5', '1e20', '0.1', '1e-7', '3.14159', '2.5', '1e16', '123456.789'],
    ...[
      '($F + $N)',
      '($F - $F)',
      '$F * $F',
      '($N / $N)',
      '($F // $N)',
      '($F % $N)',
      '$F ** 2',
      '$F|round',
      '$F|round(1)',
      '$F|round(2, "floor")',
    ],
    ...['$T|float', '$F|abs', '-$F', '$N|float', '[$F, $N]|sum', '[$F, $N]|max'],
  ],
  /** Lists, and what can be gone over as one. */
  L: [
    ...[
      'list',
      'words',
      'nested',
      'empty',
      '[]',
      '()',
      "['b', 'a']",
      "(1, 'a')",
      '[1.0, 1, true]',
      '[none, 1]',
      "[' a', 'b ']",
    ],
    ...[
      '[$A, $A]',
      '($A,)',
      '$L[$N:]',
      '$L[::-1]',
      '$L[:$N]',
      '$T.split()',
      '$T.split($T)',
      '$T.split($T, 1)',
      '$T.rsplit($T, $N)',
      '$T|list',
    ],
    ...[
      '$L|list',
      '$L|reverse|list',
      '$L|unique|list',
      '$L|batch(2)|list',
      '$L|slice(2)|list',
      '$L|batch(2, $A)|list',
      '[$N, $N, $F]|sort',
    ],
    ...[
      '[$T, $T, $T]|sort',
      '[$T, $T]|sort(reverse=true)',
      '[$T, $T]|sort(case_sensitive=true)',
      '$L|select|list',
      '$L|reject("none")|list',
    ],
    ...[
      '$L|select("string")|list',
      '$L|map("string")|list',
      '$L|map("default", $A)|list',
      '[$N, $N, $N]|select("odd")|list',
      '$D|list',
      '$D|dictsort',
    ],
    ...[
      '$D.items()|list',
      '$D.values()|list',
      'range($N)|list',
      'range($N, $N)|list',
      '$T.splitlines()',
      '$T.partition($T)',
      '$L|map("length")|list',
    ],
    ...[
      'people|map(attribute="name")|list',
      'people|selectattr("age")|list',
      'people|sort(attribute="name")|list',
      '($L if $B else $L)',
      '$L + $L',
      '$L * 2',
    ],
    ...[
      'people|groupby("at.city")',
      'people|rejectattr("name", "eq", $T)|list',
      '$D|items|list',
      'people|map(attribute=$T)|list',
    ],
  ],
  D: [
    ...['dict', '{}', "{'k': 1, 'a': none}", "{1: 'i', 'x': 2.5}", 'people[0]'],
    ...[
      '{$T: $A}',
      '{$T: $A, $T: $A}',
      '{$N: $A, $F: $A}',
      'dict(a=$A, b=$A)',
      '($D if $B else $D)',
      '{"a": $L, "b": $D}',
    ],
  ],
  /** Whether something is so. */
  B: [
    ...['yes', 'true', 'false', 'n', 'missing', 'none'],
    ...[
      '$A == $A',
      '$A != $A',
      '$N < $N',
      '$T < $T',
      '$F >= $N',
      '$N < $N <= $F',
      '$T in $T',
      '$A in $L',
      '$T in $D',
      '$A not in $L',
      'not $A',
    ],
    ...[
      '$A is defined',
      '$A is none',
      '$A is string',
      '$A is number',
      '$A is iterable',
      '$A is sequence',
      '$A is mapping',
      '$N is odd',
      '$N is even',
    ],
    ...[
      '$N is divisibleby 3',
      '$T is lower',
      '$T is upper',
      '$A is true',
      '$A is boolean',
      '$A is integer',
      '$A is float',
      '$N is gt($N)',
      '$A is in($L)',
    ],
    ...[
      '$T.startswith($T)',
      '$T.endswith($T)',
      '$T.isdigit()',
      '$T.isalpha()',
      '$T.isspace()',
      '$T.isupper()',
      '$T.islower()',
      '$T.isalnum()',
      '$T.isascii()',
    ],
    ...['($A and $B)', '($B or $A)', '$L < $L', '$L == $L', '$A is not string', '$A is callable'],
  ],
  A: [
    ...[
      'missing',
      'none',
      'range(4)',
      'dict.zzz',
      'people[0].at',
      '$T',
      '$T',
      '$N',
      '$N',
      '$F',
      '$L',
      '$L',
      '$D',
      '$B',
      '$L[$N]',
      '$D[$T]',
    ],
    ...[
      '$L|first',
      '$L|last',
      '$D.get($A)',
      '($A if $B)',
      '($A or $A)',
      '($A and $A)',
      '$L[$N]|default($A)',
      '$D.items()',
      '$A|default($A, true)',
    ],
    ...[
      '$A.zzz',
      '$A["zzz"]',
      '$D.a',
      '$T + $N',
      '$A|length',
      '$A + $A',
      '$A < $A',
      '$A|sort',
      '$A[$N]',
      '$A ~ $A',
      '$A % $A',
      '$A * $A',
    ],
  ],
}

/** One template; the same for the same seed. */
export const randomTemplate = (seed: number): string => {
  const below = numbers(seed)
  const one = (from: readonly string[]): string => from[below(from.length)]!
  const expression = (depth: number, kind = 'A'): string => {
    const all = KINDS[kind]!
    const ends = all.filter((text) => !text.includes('$'))
    const found = one(depth <= 0 ? ends : all).replace(/\$([A-Z])/g, (_, inner: string) => expression(depth - 1, inner))
    // What is made of several stands in parentheses, whatever comes behind it.
    return /^[\w.]+$|^'[^']*'$|^[[({]/.test(found) ? found : `(${found})`
  }
  const blank = (): string => one(['', '', ' ', '\n', '\n  ', 'x'])
  const open = (): string => one(['{%', '{%', '{%-', '{%+'])
  const close = (): string => one(['%}', '%}', '-%}', '+%}'])
  const tag = (text: string): string => `${blank()}${open()} ${text} ${close()}${blank()}`
  const name = (): string => one(['five', 'x', 'y', 'text'])
  const statements = (depth: number, loops: boolean): string => {
    let text = ''
    for (let left = 1 + below(3); left > 0; left -= 1) {
      const body = (looping = loops): string => (depth <= 0 ? `{{ ${name()} }}` : statements(depth - 1, looping))
      switch (below(12)) {
        case 0:
          text += tag(`set ${name()} = ${expression(2)}`)
          break
        case 1:
          text += `${tag(`if ${expression(1)}`)}${body()}${below(2) === 0 ? `${tag('else')}${body()}` : ''}${tag('endif')}`
          break
        case 2:
          text += `${tag(`for ${name()} in ${expression(1)}${below(3) === 0 ? ` if ${expression(1)}` : ''}`)}${body(true)}{{ loop.${one(['index', 'last', 'length', 'previtem', 'first', 'revindex'])} }}${below(3) === 0 ? `${tag('else')}${body()}` : ''}${tag('endfor')}`
          break
        case 3:
          text += `${tag(`macro m(${name()}, y=${expression(1)})`)}${body(false)}${tag('endmacro')}{{ m(${expression(1)}) }}`
          break
        case 4:
          text += `${tag(`set ${name()}`)}${body()}${tag('endset')}`
          break
        case 5:
          text += `${tag(`with x = ${expression(1)}`)}${body()}${tag('endwith')}`
          break
        case 6:
          text += loops ? `${tag(`if ${expression(1)}`)}${tag(one(['break', 'continue']))}${tag('endif')}` : blank()
          break
        case 7:
          text += `${tag('filter upper')}${body()}${tag('endfilter')}`
          break
        default:
          text += `{{${one(['', '-'])} ${expression(1 + below(3))} ${one(['', '-'])}}}${blank()}`
      }
    }
    return text
  }
  return below(3) === 0 ? statements(2, false) : `{{ ${expression(4)} }}`
}
