// Which control a value gets, by its JSON Schema.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { allowed, kindOf, same, type Kind, type Schema } from '../src/lib/schema.ts';

const CASES: [string, Schema, Kind][] = [
  ['text', { type: 'string', pattern: '^a' }, 'text'],
  ['a number', { type: 'integer' }, 'number'],
  ['yes or no', { type: 'boolean' }, 'switch'],
  ['one of some words', { type: 'string', enum: ['a', 'b'] }, 'choice'],
  ['something that may be null', { type: ['null', 'string'] }, 'text'],
  ['a group', { type: 'object', properties: { fail: { type: 'boolean' } }, additionalProperties: false }, 'group'],
  ['a map of unknown keys', { type: 'object', additionalProperties: { type: 'string' } }, 'json'],
  ['a list of words', { type: 'array', items: { type: 'string' } }, 'list'],
  ['a list of groups', { type: 'array', items: { type: 'object', properties: {} } }, 'json'],
  ['anything', {}, 'json'],
];

for (const [name, schema, kind] of CASES) {
  test(`${name} is edited as ${kind}`, () => assert.equal(kindOf(schema), kind));
}

test('what may be entered is said in words', () => {
  assert.equal(allowed({ type: 'number', minimum: 0, maximum: 3600 }), '0 to 3600');
  assert.equal(allowed({ type: 'number', minimum: 1 }), 'at least 1');
});

test('values are the same by what they say', () => {
  assert.ok(same({ a: [1] }, { a: [1] }));
  assert.ok(!same(undefined, null));
});
