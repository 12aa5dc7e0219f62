import assert from 'node:assert/strict';
import test from 'node:test';
import { disksOf } from '../src/lib/disks.ts';

test('disks are read with what is on them', () => {
  const root = { device: 'sda1', type: 'ext4', label: 'root', bytes: 20e9, mounted_on: '/', mounted_at: 1767225600 };
  const disks = [{ name: 'sda', device: 'sda', bytes: 2e12, bus: 'ata', rotational: true, serial: 'X1', fingerprint: 'f', contents: [root, { type: 'gpt' }] }];
  assert.deepEqual(disksOf({ disks }), [
    { name: 'sda', facts: 'sda, 2.0 TB, ata, rotates, serial X1', known: true, contents: ['sda1 ext4 “root” 20.0 GB, last mounted on / 2026-01-01', 'gpt'] },
  ]);
});

test('whatever a machine reports is read', () => {
  assert.deepEqual(disksOf(null), []);
  assert.deepEqual(disksOf({ disks: 'none' }), []);
  const disks = [{ name: 7 }, null, { name: 'sda', contents: [null, { label: 'x' }, 'y'] }, { name: 'sda' }];
  assert.deepEqual(disksOf({ disks }), [{ name: 'sda', facts: '', known: false, contents: [] }]);
});
