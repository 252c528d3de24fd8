import { expect, test } from 'vitest'
import { fieldOf } from '../../src/watch/field.ts'

test.each([
  ['1', 'north-1 app: ok', 'north-1'],
  ['4', 'Jun 14 15:16:01 combo sshd', 'combo'],
  ['4', '\tJun  14 15:16:01 \t combo sshd', 'combo'],
  ['9', 'too short', undefined],
  ['host', 'level=warn host=north-1 msg="a b"', 'north-1'],
  ['host', 'ghost=9 level=warn', undefined],
  ['host', 'level=warn\thost=north-1, and more', 'north-1'],
  ['msg', 'level=warn msg="a b" host=x', 'a b'],
  ['host', 'host= level=warn', undefined],
  ['host', '{"host":"north-1","n":1}', 'north-1'],
  ['n', '{"host":"north-1","n":1}', '1'],
  ['pod.name', '{"pod":{"name":"web-7"}}', 'web-7'],
  ['pod', '{"pod":{"name":"web-7"}}', undefined],
  ['pod.name.x', '{"pod":{"name":"web-7"}}', undefined],
  ['constructor', '{"a":1}', undefined],
  ['host', '{"host":', undefined],
  ['1', 'first of record\n second line', 'first'],
  ['host', 'at x\nhost=late', undefined],
])('the field %s of %j is %j', (field, record, session) => expect(fieldOf(field)(record)).toBe(session))

test('a name is cut where it is longer than any name', () =>
  expect(fieldOf('1')('x'.repeat(100_000))).toHaveLength(200))
