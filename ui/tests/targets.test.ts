import assert from 'node:assert/strict';
import { test } from 'node:test';
import { targetsOf, trials } from '../src/lib/targets.ts';

const names = (count: number): string[] => Array.from({ length: count }, (_, number) => `n${number}`);

test('a role over many nodes is one trial, and so are nodes over many roles', () => {
  assert.deepEqual(trials({ kind: 'role', names: ['web'] }, ['n1', 'n2']), [{ nodes: ['n1', 'n2'], roles: ['web'], each: 'node' }]);
  assert.deepEqual(trials({ kind: 'node', names: ['n1', 'n2'] }, ['web', 'db']), [{ nodes: ['n1', 'n2'], roles: ['web', 'db'], each: 'role' }]);
  assert.equal(trials({ kind: 'role', names: ['web'] }, names(1000)).length, 1);
  assert.deepEqual(trials({ kind: 'role', names: ['web'] }, []), []);
});

test('beyond what one request takes they are divided, and none is lost', () => {
  const many = names(2500);
  const asked = trials({ kind: 'role', names: ['web'] }, many);
  assert.deepEqual(asked.map((one) => targetsOf(one).length), [1000, 1000, 500]);
  assert.deepEqual(asked.flatMap(targetsOf), many);

  const roles = names(30);
  const divided = trials({ kind: 'node', names: names(1000) }, roles);
  assert.deepEqual(divided.map((one) => one.roles.length), [10, 10, 10]);
  assert.deepEqual(divided.flatMap(targetsOf), roles);
  assert.equal(trials({ kind: 'node', names: names(20_000) }, ['web'])[0]?.roles.length, 1);
});
