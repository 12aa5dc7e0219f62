import assert from 'node:assert/strict';
import test from 'node:test';
import { lostData } from '../src/lib/lost.ts';

const disk = (name: string, contents: string[], known = true) => ({ name, known, contents });

test('what is lost is named with its disk and its machine', () => {
  const installs = [
    { node: 'n1', wipes: [disk('sda', ['sda1 ext4 “pgdata”', 'sda2 swap']), disk('sdb', [])] },
    { node: 'n2', wipes: [disk('sda', [], false)] },
  ];
  assert.equal(lostData(installs), 'sda1 ext4 “pgdata” on sda of n1, sda2 swap on sda of n1, what nobody knows on sda of n2');
  assert.equal(lostData([]), '');
});

test('a long list is cut and counted', () => {
  const contents = Array.from({ length: 23 }, (_, number) => `sda${number} xfs`);
  assert.match(lostData([{ node: 'n1', wipes: [disk('sda', contents)] }]), /sda19 xfs on sda of n1, and 3 more$/);
});

test('a long label is cut in the question, so that its button stays in sight', () => {
  const installs = [{ node: 'n1', wipes: [disk('sda', [`sda1 ext4 “${'x'.repeat(500)}”`])] }];
  assert.match(lostData(installs), /^sda1 ext4 “x{79}… on sda of n1$/);
});
