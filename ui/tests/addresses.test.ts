// Addresses in their order, whatever way they are written.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { amount, lines, order } from '../src/lib/addresses.ts';

test('addresses are sorted by their number, IPv4 before IPv6', () => {
  const sorted = ['10.0.0.2', '10.0.0.10', '192.168.0.1', '::1', 'fd00::9', 'fd00::10', 'fd00::1:0', 'fd00:0:0:1::'];
  const mixed = [...sorted].reverse().sort((one, other) => (order(one) < order(other) ? -1 : 1));
  assert.deepEqual(mixed, sorted);
});

test('an address has one number however it is written', () => {
  assert.equal(order('fd00::1'), order('fd00:0:0:0:0:0:0:1'));
  assert.equal(order('::ffff:10.0.0.1'), order('::ffff:a00:1'));
  assert.equal(order('::'), 1n << 128n);
});

test('gaps lie between those who hold something', () => {
  const held = [{ address: '10.0.0.12', node: 'b' }, { address: '10.0.0.9', node: 'a' }];
  const gaps = [{ first: '10.0.0.13', last: '10.0.0.20', size: 8 }, { first: '10.0.0.10', last: '10.0.0.11', size: 2 }];
  const found = lines(held, gaps).map((line) => (line.kind === 'held' ? line.held.node : line.gap.size));
  assert.deepEqual(found, ['a', 2, 'b', 8]);
});

test('very many are only told roughly', () => {
  assert.equal(amount(254), '254');
  assert.equal(amount(2 ** 64 - 16), 'about 2⁶⁴');
});
