// The layout of the graph: cohorts from left to right, nothing on top of anything else, and always the same.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { place, type Arrow, type Item } from '../src/lib/layers.ts';

function chains(count: number, length: number): [Item[], Arrow[]] {
  const items: Item[] = [];
  const arrows: Arrow[] = [];
  for (let chain = 0; chain < count; chain += 1) {
    for (let layer = 0; layer < length; layer += 1) {
      items.push({ id: `${chain}-${layer}`, label: `role-${layer}`, layer });
      if (layer) arrows.push({ from: `${chain}-${layer - 1}`, to: `${chain}-${layer}` });
    }
  }
  return [items, arrows];
}

test('whatever an item stands on is to the left of it', () => {
  const [items, arrows] = chains(150, 5);
  const spots = place(items, arrows);
  for (const { from, to } of arrows) assert.ok(spots.get(from)!.x < spots.get(to)!.x, `${from} -> ${to}`);
});

test('no two items are in one place', () => {
  const [items, arrows] = chains(500, 10);
  const taken = new Set([...place(items, arrows).values()].map(({ x, y }) => `${x} ${y}`));
  assert.equal(taken.size, items.length);
});

test('the same graph looks the same, in whatever order it came', () => {
  const [items, arrows] = chains(40, 4);
  const mixed = place([...items].reverse(), [...arrows].reverse());
  assert.deepEqual([...place(items, arrows)].sort(), [...mixed].sort());
});

test('chains that do not touch are drawn without crossing', () => {
  const [items, arrows] = chains(30, 3);
  const spots = place(items, arrows);
  const order = (layer: number): string[] =>
    Array.from({ length: 30 }, (_, chain) => String(chain)).sort((a, b) => spots.get(`${a}-${layer}`)!.y - spots.get(`${b}-${layer}`)!.y);
  assert.deepEqual(order(1), order(0));
  assert.deepEqual(order(2), order(0));
});
