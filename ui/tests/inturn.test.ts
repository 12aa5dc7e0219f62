import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inTurn } from '../src/lib/inturn.ts';

/** A reading that ends when the test says so. */
function reading() {
  const ends: { done: () => void; fail: (error: Error) => void }[] = [];
  let open = 0;
  let most = 0;
  const read = inTurn(async () => {
    most = Math.max(most, ++open);
    try {
      await new Promise<void>((done, fail) => ends.push({ done, fail }));
    } finally {
      open -= 1;
    }
  });
  return { read, ends, most: () => most };
}
const settle = (): Promise<void> => new Promise((done) => setTimeout(done));

test('whoever asks while one is read gets another that begins later, and shares it', async () => {
  const { read, ends, most } = reading();
  const first = read();
  await settle();
  const second = read();
  assert.equal(read(), second);
  await settle();
  assert.equal(ends.length, 1);
  ends[0]!.done();
  await first;
  await settle();
  assert.equal(ends.length, 2);
  const third = read();
  ends[1]!.done();
  await second;
  await settle();
  ends[2]!.done();
  await third;
  assert.equal(most(), 1);
});

test('a reading that fails says so and keeps nobody else from reading', async () => {
  const { read, ends } = reading();
  const first = read();
  await settle();
  const second = read();
  ends[0]!.fail(new Error('no'));
  await assert.rejects(first, /no/);
  await settle();
  ends[1]!.done();
  await second;
});
