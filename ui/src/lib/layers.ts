// Where things of the graph go: cohorts are the layers, so only the order within each is left to find. A few sweeps of
// barycentres do that in milliseconds for thousands, and the same graph always looks the same.

export interface Item {
  id: string;
  label: string;
  layer: number;
}

export interface Arrow {
  from: string;
  to: string;
}

export interface Spot {
  x: number;
  y: number;
}

const WIDE = 250;
const HIGH = 46;
const TALL = 60; // items in one column, before a layer takes a second one
const SWEEPS = 4;

export function place(items: Item[], arrows: Arrow[]): Map<string, Spot> {
  const layers = new Map<number, Item[]>();
  for (const item of items) layers.set(item.layer, [...(layers.get(item.layer) ?? []), item]);
  const ordered = [...layers.keys()].sort((a, b) => a - b).map((layer) => layers.get(layer) ?? []);
  for (const layer of ordered) layer.sort((a, b) => a.label.localeCompare(b.label, undefined, { numeric: true }) || a.id.localeCompare(b.id));
  const before = neighbours(arrows, (arrow) => [arrow.to, arrow.from]);
  const after = neighbours(arrows, (arrow) => [arrow.from, arrow.to]);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const down = sweep % 2 === 0;
    order(down ? ordered : [...ordered].reverse(), down ? before : after);
  }
  return spots(ordered);
}

function neighbours(arrows: Arrow[], ends: (arrow: Arrow) => [string, string]): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const arrow of arrows) {
    const [of, other] = ends(arrow);
    const list = found.get(of);
    if (list) list.push(other);
    else found.set(of, [other]);
  }
  return found;
}

/** Sort each layer by the mean position of what its items are joined to in the layers already passed. */
function order(layers: Item[][], joined: Map<string, string[]>): void {
  const position = new Map<string, number>();
  for (const layer of layers) {
    const wish = new Map<string, number>();
    for (const [index, item] of layer.entries()) {
      const at = (joined.get(item.id) ?? []).map((id) => position.get(id)).filter((one) => one !== undefined);
      wish.set(item.id, at.length ? at.reduce((sum, one) => sum + one, 0) / at.length : index / Math.max(1, layer.length));
    }
    layer.sort((a, b) => (wish.get(a.id) ?? 0) - (wish.get(b.id) ?? 0));
    for (const [index, item] of layer.entries()) position.set(item.id, index / Math.max(1, layer.length));
  }
}

function spots(layers: Item[][]): Map<string, Spot> {
  const found = new Map<string, Spot>();
  const tallest = Math.min(TALL, Math.max(0, ...layers.map((layer) => layer.length)));
  let x = 0;
  for (const layer of layers) {
    const columns = Math.max(1, Math.ceil(layer.length / TALL));
    const rows = Math.ceil(layer.length / columns);
    const top = ((tallest - rows) * HIGH) / 2;
    for (const [index, item] of layer.entries()) {
      found.set(item.id, { x: x + Math.floor(index / rows) * WIDE, y: top + (index % rows) * HIGH });
    }
    x += columns * WIDE + 40;
  }
  return found;
}
