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
  const contents = ['something unreadable', 'something unreadable “x”', 'something unreadable'];
  assert.deepEqual(disksOf({ disks }), [
    { name: 'sda', facts: '', known: false, contents },
    { name: 'sda', facts: '', known: false, contents: [] },
  ]);
});

test('nothing that is hidden or runs the other way reaches the page, and no list is endless', () => {
  const contents = Array.from({ length: 5000 }, () => ({ type: 'ext4', label: `a\u202eb\u2066\u200b\n\u001b[2J${'x'.repeat(5000)}` }));
  const [disk] = disksOf({ disks: Array.from({ length: 5000 }, () => ({ name: 'sda\u202e', contents })) });
  assert.equal(disk?.name, 'sda');
  assert.equal(disk?.contents.length, 128);
  assert.match(disk?.contents[0] ?? '', /^ext4 “ab\[2Jx{100,128}”$/);
});
